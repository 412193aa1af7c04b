package request

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"strconv"
)

// SameJSON reports whether two JSON texts have the same value, as far as a page that parses
// JSON in JavaScript can tell: the order of an object's fields does not matter, and numbers
// are rounded to 64 bits. A text that is not valid JSON, or has a number that is too large,
// is the same as none.
//
// Decoded, a text may take fifty times its size. SameJSON keeps nothing of either: it compares
// their hashes, with a new seed each time, so that nobody can look for two texts with the
// same one.
func SameJSON(a, b []byte) bool {
	seed := maphash.MakeSeed()
	first, err := hashJSON(seed, a)
	if err != nil {
		return false
	}
	second, err := hashJSON(seed, b)
	return err == nil && first == second
}

func hashJSON(seed maphash.Seed, text []byte) (uint64, error) {
	s := NewScanner(text)
	h := valueHasher{s: s, seed: seed}
	sum, err := h.value()
	if err != nil {
		return 0, err
	}
	return sum, s.End()
}

// valueHasher computes the hash of a value from those of its parts.
type valueHasher struct {
	s    *Scanner
	seed maphash.Seed
}

// value returns the hash of the next value.
func (h *valueHasher) value() (uint64, error) {
	s := h.s
	if len(s.path) >= maxDepth {
		return 0, s.broken("it is nested too deep")
	}
	c, ok := s.peek()
	switch {
	case !ok:
		return 0, s.broken("it ends too early")
	case c == '{':
		return h.object()
	case c == '[':
		return h.list()
	case c == '"':
		text, err := s.Word()
		return h.sum('"', maphash.Bytes(h.seed, text)), err
	}
	from := s.at
	if err := s.scalar(c); err != nil {
		return 0, err
	}
	word := s.data[from:s.at]
	if c != '-' && (c < '0' || c > '9') {
		return h.sum('w', maphash.Bytes(h.seed, word)), nil
	}
	number, err := strconv.ParseFloat(string(word), 64)
	if err != nil {
		return 0, s.Invalid("has a number that is too large")
	}
	return h.sum('0', math.Float64bits(number+0)), nil // of -0, too, which is 0
}

// list combines the hashes of the elements in their order.
func (h *valueHasher) list() (uint64, error) {
	sum := h.sum('[', 0)
	err := h.s.List(NoLimit, func(int) error {
		element, err := h.value()
		sum = h.sum(',', sum, element)
		return err
	})
	return sum, err
}

// object adds the hashes of the fields, which is the same in any order.
func (h *valueHasher) object() (uint64, error) {
	var fields, count uint64
	err := h.s.object(func(raw []byte, plain bool) error {
		name, err := textOf(raw, plain)
		if err != nil {
			return err
		}
		value, err := h.value()
		fields += h.sum(':', maphash.Bytes(h.seed, name), value)
		count++
		return err
	})
	return h.sum('{', fields, count), err
}

// sum is the hash of a kind of value and of the numbers that it is made of.
func (h *valueHasher) sum(kind byte, of ...uint64) uint64 {
	b := append(make([]byte, 0, 24), kind)
	for _, n := range of {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return maphash.Bytes(h.seed, b)
}
