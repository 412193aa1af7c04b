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

// The scripts. Their first line has flags for the server: it refuses a script that
// writes while memory is short, before the script begins; no script may leave its
// slot.
var (
	readSession  = newScript("session_read", false)
	writeSession = newScript("session_write", true)
	commitStep   = compile(source("session_commit"), true)
	addHints     = newScript("hints_add", true)
	settleHints  = newScript("hints_settle", true)
	noteFilled   = newScript("fill", true)
	putTasks     = newScript("task_put", true)
	changeTask   = newScript("task_change", true)
	readStream   = newScript("stream_read", false)
	writeStream  = compile(source("stream_append")+source("prelude")+source("keys")+source("stream_write"), true)
	useLock      = newScript("lock", true)
	useBlob      = newScript("blob", true)
	raiseFormat  = newScript("format", true)
	probe        = newScript("probe", false)
	tryWrite     = compile(source("ready"), true)

	scripts = []*script{readSession, writeSession, commitStep, addHints, settleHints, noteFilled, putTasks, changeTask, readStream, writeStream, useLock, useBlob, raiseFormat, probe, tryWrite}
)

func newScript(name string, writes bool) *script {
	return compile(source("prelude")+source("keys")+source(name), writes)
}

func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // the files are embedded
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

// run is a script with its arguments and its result.
type run struct {
	*script
	keys []string
	args []any
	// whole sends the source in any case: scripts after it must not run if the server
	// does not have this one.
	whole bool
	// pieces are the chunks of a batch that is appended.
	pieces [][]byte

	out any
	err error
}

// eval runs a script in one round trip. If the server does not have it yet, the
// source is sent.
func (b *Backend) eval(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	if s.writes && b.config.WaitReplicas > 0 {
		r := run{script: s, keys: keys, args: args}
		b.evalReplicated(ctx, &r)
		return r.out, r.err
	}
	out, err := b.client.EvalSha(ctx, s.sha, keys, args...).Result()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		out, err = b.client.Eval(ctx, s.source, keys, args...).Result()
	}
	return out, err
}

// evalCurrent is eval for a script that reads; in the same round trip it checks
// whether this program can still use the store.
func (b *Backend) evalCurrent(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	pipe := b.client.Pipeline()
	ran := pipe.EvalSha(ctx, s.sha, keys, args...)
	found := pipe.Get(ctx, b.keys.format())
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := b.noteFormat(found); err != nil {
		return nil, err
	}
	out, err := ran.Result()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		return b.eval(ctx, s, keys, args)
	}
	return out, err
}

// evalAll runs scripts in one round trip to each node; if replicas are waited for,
// all must be of one slot. Scripts of one slot run in order, but others may run
// between them: a script that relies on another must check its result.
func (b *Backend) evalAll(ctx context.Context, runs ...*run) {
	switch {
	case len(runs) == 1:
		runs[0].out, runs[0].err = b.eval(ctx, runs[0].script, runs[0].keys, runs[0].args)
		return
	case b.config.WaitReplicas > 0:
		b.evalReplicated(ctx, runs...)
		return
	}
	pipe := b.client.Pipeline()
	cmds := make([]*goredis.Cmd, len(runs))
	for i, r := range runs {
		if r.whole {
			cmds[i] = pipe.Eval(ctx, r.source, r.keys, r.args...)
		} else {
			cmds[i] = pipe.EvalSha(ctx, r.sha, r.keys, r.args...)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, r := range runs {
		if r.out, r.err = cmds[i].Result(); goredis.HasErrorPrefix(r.err, "NOSCRIPT") {
			r.out, r.err = b.eval(ctx, r.script, r.keys, r.args)
		}
	}
}

// evalReplicated runs scripts of one slot and, in the same round trip, waits for
// replicas to have what they wrote.
func (b *Backend) evalReplicated(ctx context.Context, runs ...*run) {
	const attempts = 4 // a slot may have moved
	left := runs
	for range attempts {
		node, err := b.nodeOf(ctx, runs[0].keys[0])
		if err != nil {
			fail(left, err)
			return
		}
		var replicated error
		if left, replicated = b.tryReplicated(ctx, node, left); len(left) == 0 {
			if replicated != nil {
				fail(runs, replicated)
			}
			return
		}
	}
}

func fail(runs []*run, err error) {
	for _, r := range runs {
		r.out, r.err = nil, err
	}
}

// nodeOf returns the server that has a key.
func (b *Backend) nodeOf(ctx context.Context, key string) (goredis.UniversalClient, error) {
	if b.cluster == nil {
		return b.client, nil
	}
	return b.cluster.MasterForKey(ctx, key)
}

// tryReplicated sends scripts to a node, and returns those that have to be sent
// again. If there are none, replicated reports whether the replicas have the rest.
//
// A script may have nothing to write because it repeats one whose answer was lost.
// The server makes a connection wait only for its own writes, and replicas receive
// writes in order: so there is always one write, of a key that nobody reads.
func (b *Backend) tryReplicated(ctx context.Context, node goredis.UniversalClient, runs []*run) (again []*run, replicated error) {
	pipe := node.Pipeline()
	cmds := make([]*goredis.Cmd, len(runs))
	for i, r := range runs {
		cmds[i] = pipe.EvalSha(ctx, r.sha, r.keys, r.args...)
	}
	pipe.Set(ctx, markOf(runs[0].keys[0]), "", time.Second)
	wait := pipe.Do(ctx, "WAIT", b.config.WaitReplicas, b.config.WaitTimeout.Milliseconds())
	_, _ = pipe.Exec(ctx) // each command has its own error
	moved, failed := false, false
	for i, r := range runs {
		r.out, r.err = cmds[i].Result()
		switch {
		case goredis.HasErrorPrefix(r.err, "NOSCRIPT"):
			if err := node.ScriptLoad(ctx, r.source).Err(); err != nil {
				r.err = err
				continue
			}
			again = append(again, r)
		case b.cluster != nil && (goredis.HasErrorPrefix(r.err, "MOVED") || goredis.HasErrorPrefix(r.err, "ASK")):
			moved, again = true, append(again, r)
		case r.err != nil:
			failed = true
		}
	}
	if moved {
		b.cluster.ReloadState(ctx)
	}
	if len(again) > 0 || failed {
		return again, nil
	}
	have, err := wait.Int64()
	if err == nil && have < int64(b.config.WaitReplicas) {
		err = session.ErrUnavailable.WithMessage("the write was applied, but only %d of %d replicas confirmed it within %s",
			have, b.config.WaitReplicas, b.config.WaitTimeout)
	}
	return nil, err
}

// tokens distinguish requests, so that a request which a client sends again after
// it has lost the answer is recognised.
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

// batch is a list of operations on one session, all of which are applied or none.
type batch struct {
	letters []byte
	args    []any
	// current makes a read also check whether this program can still use the store.
	current bool
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

// names returns the keys of the letters in use, with their prefix.
func (w *batch) names(prefix string) []string { return keyNamesOf(prefix, string(w.letters)) }

func keyNamesOf(prefix, letters string) []string {
	size := len(prefix) + 1
	all := make([]byte, 0, size*len(letters)) // the names are substrings of it
	for i := range len(letters) {
		all = append(append(all, prefix...), letters[i])
	}
	out, names := make([]string, len(letters)), string(all)
	for i := range out {
		out[i] = names[i*size : (i+1)*size]
	}
	return out
}

// The parts of a script's answer are strings, numbers and lists.

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
	n, _ := strconv.ParseInt(s, 10, 64) // empty means none
	return n
}

// bytesOf returns a body; nil if there is none.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// fieldsOf converts a hash that a script returned as a flat list.
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
