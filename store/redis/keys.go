package redis

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/blob"
)

// The keys of a session, each known to scripts by a letter. Rows with several
// attributes are fields of a hash: the row's id, a zero byte, the attribute.
const (
	keyHeader      = "h" // hash: what commits read and write; see header.go
	keyDoc         = "d" // hash: the rest of the document: doc, end, step, output
	keyMessages    = "m" // list: the bodies of messages
	keyMetas       = "x" // list: for each message id, role and calls, with zero bytes between
	keyNames       = "i" // hash: number, from 1, by message id (m) and by checkpoint id (c)
	keyStateLog    = "s" // stream: the writes to custom state, by version
	keySnapshots   = "z" // hash: custom state at some versions
	keyStateKinds  = "k" // hash: state key to "l" for a list, "v" for another value
	keyRuns        = "r" // hash: by turn the record (d), outcome (e), output (o), progress (x); turn by id (i) and request (q)
	keyPoints      = "p" // list: the rows of checkpoints, by number
	keyUndone      = "c" // hash: those that were undone, by number (u)
	keyCalls       = "t" // hash: rows of calls of steps in flight, under message and call
	keyOpen        = "w" // hash: rows of waits that are open
	keyOver        = "v" // hash: rows of waits that have ended
	keyChildren    = "f" // hash: rows of child references
	keyAwaited     = "a" // hash: the children that are awaited
	keyOwnership   = "o" // hash: call to session, and under call and a zero byte when it was completed
	keyInbox       = "b" // hash: rows of entries that were not consumed
	keyInboxSeen   = "n" // hash: the ids of all entries ever sent
	keyWakes       = "g" // hash: child to run and time, of wakes for this session
	keyOutbox      = "y" // hash: parent and child to run and time, of wakes that were not moved yet
	keyBlobs       = "B" // hash: size by reference, what all count together, and their number
	keyTasks       = "j" // hash: by id the rows of tasks; see tasks.go
	keyStream      = "S" // hash: the stream's header and the progress of its producers
	keyChunks      = "X" // stream: its chunks
	keyLock        = "L" // hash: a lock
	keyPieces      = "P" // hash: the bytes of a blob, by number
	keyOwners      = "O" // hash: the sessions that have it; see blob.lua
	sessionLetters = keyHeader + keyDoc + keyMessages + keyMetas + keyNames + keyStateLog + keySnapshots + keyStateKinds +
		keyRuns + keyPoints + keyUndone + keyCalls + keyOpen + keyOver + keyChildren + keyAwaited + keyOwnership +
		keyInbox + keyInboxSeen + keyWakes + keyOutbox + keyBlobs + keyTasks + keyStream + keyChunks
)

// sweepShards is the number of slots that the sweeps' indexes are spread over. It
// can never change, because entries stay where they were added.
const sweepShards = 8

// keyspace names keys.
type keyspace struct{ prefix string }

// session returns the prefix of all keys of a session, and of the stream with its
// id. The part in braces determines the slot.
func (k keyspace) session(tenant, id string) string {
	return k.prefix + ":{" + escape(tenant, false) + "/" + escape(id, true) + "}:"
}

// channel returns the channel that notifies the readers of a stream.
func (k keyspace) channel(tenant, id string) string { return k.session(tenant, id) + "changed" }

// signals returns the channel for signals.
func (k keyspace) signals() string { return k.prefix + ":{+signals}:" }

// markOf returns a key beside another one that is written only to be waited for.
// It expires.
func markOf(key string) string { return key[:strings.IndexByte(key, '}')+1] + ":mark" }

// lock returns the prefix of the key of a lock.
func (k keyspace) lock(name string) string { return k.prefix + ":{+lock/" + escape(name, false) + "}:" }

// blob returns the prefix of the keys of a blob's bytes.
func (k keyspace) blob(tenant, ref string) string {
	return k.prefix + ":{+blob/" + escape(tenant, false) + "/" + blob.Digits(ref) + "}:"
}

// format returns the key that says which programs can use the store.
func (k keyspace) format() string { return k.prefix + ":{+format}:readable" }

// listing returns the prefix of the indexes of a tenant's sessions.
func (k keyspace) listing(tenant string) string {
	return k.prefix + ":{+list/" + escape(tenant, false) + "}:"
}

// sweep returns the prefix of the sweeps' indexes of one shard.
func (k keyspace) sweep(shard int) string {
	return k.prefix + ":{+sweep/" + strconv.Itoa(shard) + "}:"
}

// shardOf spreads sessions over the shards of the sweeps' indexes.
func shardOf(tenant, id string) int {
	sum := sha256.Sum256([]byte(tenant + "\x00" + id))
	return int(sum[0]) % sweepShards
}

// indexed returns the form in a key of a value that sessions are listed by.
func indexed(parts ...string) string {
	value := strings.Join(parts, "\x00")
	if len(value) <= 64 {
		return escape(value, true)
	}
	sum := sha256.Sum256([]byte(value))
	return "#" + hex.EncodeToString(sum[:])
}

// escape encodes bytes in hex that could end a hash tag or look like a separator.
func escape(s string, slash bool) string {
	for i := range len(s) {
		if isPlain(s[i]) || slash && s[i] == '/' {
			continue
		}
		var b strings.Builder
		for j := range len(s) {
			if isPlain(s[j]) || slash && s[j] == '/' {
				b.WriteByte(s[j])
				continue
			}
			b.WriteByte('%')
			b.WriteString(hex.EncodeToString([]byte{s[j]}))
		}
		return b.String()
	}
	return s
}

func isPlain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == ':' || c == '@' || c == '-'
}

// micros returns the stored form of a time; empty for none.
func micros(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

// moment parses the form of micros.
func moment(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
