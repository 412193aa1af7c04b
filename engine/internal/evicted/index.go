package evicted

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

// maxParts is how many blobs one result may have.
const maxParts = 64

// maxIndex is how many bytes an index may have. One of as many parts as there may be needs less.
const maxIndex = 16 << 10

// Index says where the bytes of a result are.
type Index struct {
	Parts []Part `json:"parts"`
	// Lines is how many lines the result has.
	Lines int64 `json:"lines"`
}

// Part is a blob that is a part of a result.
type Part struct {
	Ref   string `json:"ref"`
	Bytes int64  `json:"bytes"`
	// Newlines is how many line breaks the part has.
	Newlines int64 `json:"newlines"`
}

// NewPart describes a part that is in the blob with this reference.
func NewPart(ref string, data []byte) Part {
	return Part{Ref: ref, Bytes: int64(len(data)), Newlines: newlines(data)}
}

// minPart is the size up to which a result is one blob.
const minPart = 1 << 20

// PartBytes returns how large the parts of a result are to be. A model reads a few kilobytes
// at a time, and each time the whole part with them is loaded, so parts are small; but not so
// small that there are many.
func PartBytes(result int) int {
	return min(max(minPart, result/(maxParts/2)), blob.MaxBytes)
}

// Split returns the parts of a result, each of at most limit bytes, cut between runes.
func Split(data []byte, limit int) [][]byte {
	var parts [][]byte
	for len(data) > limit {
		at := limit
		for at > limit-utf8.UTFMax && at > 1 && !utf8.RuneStart(data[at]) {
			at--
		}
		parts = append(parts, data[:at:at])
		data = data[at:]
	}
	return append(parts, data)
}

// Bytes is how many bytes the result has.
func (x *Index) Bytes() (n int64) {
	for i := range x.Parts {
		n += x.Parts[i].Bytes
	}
	return n
}

// Refs returns the references of the parts.
func (x *Index) Refs() []string {
	refs := make([]string, len(x.Parts))
	for i := range x.Parts {
		refs[i] = x.Parts[i].Ref
	}
	return refs
}

// Encode returns the index as the bytes of a blob. A result of one part needs none.
func (x *Index) Encode() ([]byte, error) { return session.Encode(x) }

// Decode reads the index of a result that has so many parts. The blob with it may be one that
// somebody else has put, so nothing in it is trusted but that its parts are the session's.
func Decode(data []byte, parts int) (*Index, bool) {
	var x Index
	if len(data) > maxIndex { // what is decoded may take many times as much memory
		return nil, false
	}
	if json.Unmarshal(data, &x) != nil || len(x.Parts) != parts || x.Lines < 0 {
		return nil, false
	}
	for i := range x.Parts {
		p := &x.Parts[i]
		if blob.CheckRef(p.Ref) != nil || p.Bytes <= 0 || p.Bytes > blob.MaxBytes || p.Newlines < 0 || p.Newlines > p.Bytes {
			return nil, false
		}
	}
	return &x, true
}

// ID returns the id of a result: the digits of the blob's reference or, if it has several
// parts, those of the index's, a dash and how many there are.
func ID(ref string, parts int) string {
	if parts == 1 {
		return blob.Digits(ref)
	}
	return blob.Digits(ref) + "-" + strconv.Itoa(parts)
}

// ParseID returns the reference and the number of parts in an id.
func ParseID(id string) (ref string, parts int, ok bool) {
	digits, count, several := strings.Cut(id, "-")
	ref, parts = blob.FromDigits(digits), 1
	if several {
		n, err := strconv.Atoi(count)
		if err != nil || n < 2 || n > maxParts {
			return "", 0, false
		}
		parts = n
	}
	return ref, parts, blob.CheckRef(ref) == nil && ID(ref, parts) == id
}
