package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the server names scripts by it
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

//go:embed lua/*.lua
var sources embed.FS

// script is a script with its name on the server.
type script struct {
	source, sha string
	writes      bool
}

// The scripts. Their first line tells the server what it may expect: one that
// writes is refused while memory is short, before it has begun; none may leave its
// slot.
var (
	readSession  = newScript("session_read", false)
	writeSession = newScript("session_write", true)
	commitStep   = compile(source("session_commit"), true)
	addHints     = newScript("hints_add", true)
	settleHints  = newScript("hints_settle", true)
	readStream   = newScript("stream_read", false)
	writeStream  = newScript("stream_write", true)
	useLock      = newScript("lock", true)
	probe        = newScript("probe", false)

	scripts = []*script{readSession, writeSession, commitStep, addHints, settleHints, readStream, writeStream, useLock, probe}
)

func newScript(name string, writes bool) *script {
	return compile(source("prelude")+source("keys")+source(name), writes)
}

func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // they are embedded
	}
	return string(text)
}

func compile(body string, writes bool) *script {
	first := "#!lua flags=no-writes\n"
	if writes {
		first = "#!lua\n"
	}
	s := &script{source: first + body, writes: writes}
	sum := sha1.Sum([]byte(s.source)) //nolint:gosec // the server names scripts by it
	s.sha = hex.EncodeToString(sum[:])
	return s
}

// eval runs a script in one round trip. A server that does not have it yet is sent
// the source.
func (b *Backend) eval(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	if s.writes && b.config.WaitReplicas > 0 {
		return b.evalReplicated(ctx, s, keys, args)
	}
	out, err := b.client.EvalSha(ctx, s.sha, keys, args...).Result()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		out, err = b.client.Eval(ctx, s.source, keys, args...).Result()
	}
	return out, err
}

// evalReplicated runs a script and, in the same round trip, waits for replicas to
// have what it wrote.
func (b *Backend) evalReplicated(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	const attempts = 4 // a slot may have moved
	var out any
	var err error
	for range attempts {
		node := b.client
		if b.cluster != nil {
			if node, err = b.cluster.MasterForKey(ctx, keys[0]); err != nil {
				return nil, err
			}
		}
		pipe := node.Pipeline()
		run := pipe.EvalSha(ctx, s.sha, keys, args...)
		wait := pipe.Do(ctx, "WAIT", b.config.WaitReplicas, b.config.WaitTimeout.Milliseconds())
		_, _ = pipe.Exec(ctx) // each command has its own error
		out, err = run.Result()
		switch {
		case goredis.HasErrorPrefix(err, "NOSCRIPT"):
			if err := node.ScriptLoad(ctx, s.source).Err(); err != nil {
				return nil, err
			}
			continue
		case b.cluster != nil && (goredis.HasErrorPrefix(err, "MOVED") || goredis.HasErrorPrefix(err, "ASK")):
			b.cluster.ReloadState(ctx)
			continue
		case err != nil:
			return nil, err
		}
		have, err := wait.Int64()
		if err == nil && have < int64(b.config.WaitReplicas) {
			err = session.ErrUnavailable.WithMessage("the write was made, but only %d of %d replicas have it within %s",
				have, b.config.WaitReplicas, b.config.WaitTimeout)
		}
		return out, err
	}
	return out, err
}

// tokens tell requests apart, so that one which a client sends again after it has
// lost the answer is recognised.
type tokens struct {
	process string
	count   *atomic.Int64
}

func newTokens() tokens {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails, see crypto/rand
	return tokens{hex.EncodeToString(random[:]), &atomic.Int64{}}
}

func (t tokens) next() string { return t.process + "." + strconv.FormatInt(t.count.Add(1), 36) }

// batch is operations on one session, all of which happen or none.
type batch struct {
	letters []byte
	args    []any
}

// do adds an operation that uses some of the session's keys.
func (w *batch) do(name, letters string, args ...any) {
	for i := range len(letters) {
		w.use(letters[i])
	}
	w.args = append(append(w.args, name, len(args)), args...)
}

func (w *batch) use(letter byte) {
	if !slices.Contains(w.letters, letter) {
		w.letters = append(w.letters, letter)
	}
}

// names are the keys of the letters that are used, under what they begin with.
func (w *batch) names(prefix string) []string { return keyNamesOf(prefix, string(w.letters)) }

func keyNamesOf(prefix, letters string) []string {
	out := make([]string, len(letters))
	for i := range len(letters) {
		out[i] = prefix + letters[i:i+1]
	}
	return out
}

// The parts of a script's answer come as strings, numbers and lists.

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case nil:
		return ""
	}
	return fmt.Sprint(v)
}

func list(v any) []any {
	out, _ := v.([]any)
	return out
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // empty is none
	return n
}

// bytesOf is a body; nil if there is none.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// fieldsOf reads a hash that a script gave as a flat list.
func fieldsOf(v any) map[string]string {
	flat := list(v)
	out := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		out[text(flat[i])] = text(flat[i+1])
	}
	return out
}

// rowsOf groups a hash's fields by row, then by attribute.
func rowsOf(fields map[string]string) map[string]row {
	out := map[string]row{}
	for field, value := range fields {
		at := len(field) - 2
		if at < 0 || field[at] != 0 {
			continue
		}
		id := field[:at]
		if out[id] == nil {
			out[id] = row{}
		}
		out[id][field[at+1]] = value
	}
	return out
}

// row is one row's attributes.
type row map[byte]string

func (r row) number() int64         { return number(r['n']) }
func (r row) time(a byte) time.Time { return moment(r[a]) }
func (r row) body(a byte) []byte    { return bytesOf(r[a]) }
