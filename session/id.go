package session

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// MaxIDBytes is the longest session, run, call or request id accepted.
	MaxIDBytes = 256
	// maxDerivedIDBytes is the longest child id that is kept readable; longer
	// ones keep a prefix and end in a hash.
	maxDerivedIDBytes = 200
)

// CheckID reports whether id may name a session: 1 to 256 bytes of
// [A-Za-z0-9._:@/-], without "..", not starting with "/" or ".".
func CheckID(id string) error { return checkID("session id", id) }

func checkID(field, id string) error {
	switch {
	case id == "":
		return Invalid(field, "must not be empty")
	case len(id) > MaxIDBytes:
		return Invalid(field, "%.40q… has %d bytes, at most %d are allowed", id, len(id), MaxIDBytes)
	case strings.Contains(id, ".."):
		return Invalid(field, "%q must not contain %q", id, "..")
	case id[0] == '/' || id[0] == '.':
		return Invalid(field, "%q must not start with %q", id, id[:1])
	}
	for i := range len(id) {
		if !idByte(id[i]) {
			return Invalid(field, "%q may hold only letters, digits and ._:@/-", id)
		}
	}
	return nil
}

func idByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("._:@/-", c) >= 0
}

// CheckKeyID reports whether id may name a run or a request: 1 to 256 bytes of
// anything printable. It is looser than [CheckID] because such ids never become
// part of a path.
func CheckKeyID(field, id string) error {
	switch {
	case id == "":
		return Invalid(field, "must not be empty")
	case len(id) > MaxIDBytes:
		return Invalid(field, "has %d bytes, at most %d are allowed", len(id), MaxIDBytes)
	}
	for _, r := range id {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return Invalid(field, "%q holds a control or invalid character", id)
		}
	}
	return nil
}

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// ids orders the ids that a process mints within one millisecond.
var ids struct {
	sync.Mutex
	last  int64 // milliseconds
	count uint16
}

// randomIDBytes is the randomness that every minted id has of its own.
const randomIDBytes = 12

// sortableID mints an id that nobody can guess, however many others they know: 48
// bits of milliseconds and 16 bits that count within the millisecond, so that ids
// minted by one process sort in the order they were minted, then 96 random bits.
func sortableID(now time.Time) string {
	ids.Lock()
	switch ms := now.UnixMilli(); {
	case ms > ids.last:
		ids.last, ids.count = ms, 0
	case ids.count == math.MaxUint16:
		ids.last, ids.count = ids.last+1, 0
	default:
		ids.count++
	}
	order := uint64(ids.last)<<16 | uint64(ids.count)
	ids.Unlock()
	var b [8 + randomIDBytes]byte
	binary.BigEndian.PutUint64(b[:8], order)
	_, _ = rand.Read(b[8:]) // never fails, see crypto/rand
	return idEncoding.EncodeToString(b[:])
}

// NewID mints a session id: "ses_" and a sortable unique id.
func NewID() string { return "ses_" + sortableID(time.Now()) }

// NewRunID mints a run id.
func NewRunID() string { return "run_" + sortableID(time.Now()) }

// NewMessageID mints the id of a message that a caller hands in.
func NewMessageID() string { return "msg_" + sortableID(time.Now()) }

// NewApprovalID mints the id that an approval's answer must repeat.
func NewApprovalID() string { return "apr_" + sortableID(time.Now()) }

// NewOwner mints a lease owner's token, prefixed by the runtime that holds it.
func NewOwner(runtime string) string { return runtime + ":" + sortableID(time.Now()) }

// CallID derives the id of the index-th call of an assistant message. The
// provider's own id is kept beside it: provider ids repeat, and ours name rows,
// child sessions and submissions.
func CallID(sessionID, messageID string, index int) string {
	return "call_" + hash(12, sessionID, messageID, fmt.Sprint(index))
}

// ReplyID derives the id of the assistant message of a run's step.
func ReplyID(runID string, step int) string { return runID + "/" + strconv.Itoa(step) }

// ResultID derives the id of the tool message that answers a call.
func ResultID(callID string) string { return callID + ".r" }

// IsDerivedMessageID reports whether id has the form of one that the framework
// gives messages itself: those of a run (run_…/1, run_…/in/0), tool results
// (call_….r) and what came by the inbox. A client must not choose such an id; ids
// of [NewMessageID] are not among them, for they come back from clients.
func IsDerivedMessageID(id string) bool {
	if strings.HasPrefix(id, "run_") {
		return strings.Contains(id, "/")
	}
	return strings.HasPrefix(id, "call_") || strings.HasPrefix(id, "inbox/")
}

// NewChildID mints the id of a child's session: kind is "sub", "agent" or "remote",
// name the call id or the companion's name. It is readable and ends in randomness of
// its own, so that nobody can create a session under it before the child is created.
// The call and the reference to the child keep it; it is never derived again.
func NewChildID(parent, kind, name string) string {
	id := parent + "-" + kind + "-" + name + "." + randomText()
	if len(id) <= maxDerivedIDBytes {
		return id
	}
	const hashed = 24
	return strings.TrimRight(id[:maxDerivedIDBytes-hashed-1], "./") + "-" + hash(hashed/2, id)
}

// NewPeerID mints the id of the session on another server that a stand-in is for. Its
// randomness is not the stand-in's, which the user of the conversation can see: nobody
// can create a session under it before the other server is asked to.
func NewPeerID(standIn string) string {
	return standIn + "@peer." + randomText()
}

// randomText is the 80 random bits of a child's id, in 16 characters.
func randomText() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return idEncoding.EncodeToString(b[:])
}

// childIDs matches the ids that children have, and those that they had before they
// ended in randomness.
var childIDs = regexp.MustCompile(`-(sub|agent|remote)-[A-Za-z0-9_-]+\.[0-9a-z]{16}$|-(sub|remote)-call_[0-9a-f]{24}$`)

// CheckChosenID is [CheckID] for an id that a caller has chosen for a new session:
// it refuses those that only the framework gives to the sessions of sub-agents.
func CheckChosenID(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if childIDs.MatchString(id) {
		return Invalid("session id", "%q has the form of a sub-agent's session, which cannot be chosen", id)
	}
	return nil
}

// ChildRunID derives the id of the run that a call of a parent's run starts in a
// child's session. A call that takes the child up again in the same run has a
// higher round.
func ChildRunID(parentRun, callID string, round int) string {
	id := parentRun + "." + callID
	if round > 0 {
		id += "." + strconv.Itoa(round)
	}
	if len(id) <= maxDerivedIDBytes {
		return id
	}
	return "run_" + hash(16, id)
}

// CheckpointID names the checkpoint a commit writes.
func CheckpointID(sessionID string, step int, at time.Time, key string) string {
	return "cpv1-" + sessionID + "-s" + strconv.Itoa(step) + "-t" + strconv.FormatInt(at.UnixMilli(), 10) + "-" + hash(3, sessionID, key)
}

// hash is the first n bytes, in hex, of a hash over unambiguously joined parts.
func hash(n int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = io.WriteString(h, strconv.Itoa(len(p))+":"+p)
	}
	return hex.EncodeToString(h.Sum(nil)[:n])
}
