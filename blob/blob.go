// Package blob defines the store of blobs: bytes that belong to a session and are too
// large, or not of the kind, for a message. A message names a blob by its reference.
//
// A blob belongs to the root of a session's tree, so all agents of a conversation share
// it, and it lives as long as the root does. A reference is derived from the bytes.
// Knowing one gives nobody the bytes: a session reads only what its own tree has put, or
// what the session that it was cloned from had.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// Limits of blobs.
const (
	// MaxBytes is the largest blob.
	MaxBytes = 16 << 20
	// PieceBytes is the largest row in which a store keeps a part of a blob. A larger one
	// delays the writes of others.
	PieceBytes = 1 << 20
	// MinCharge is how many bytes a blob counts at least towards the limit of its session. So
	// the limit also bounds how many blobs a session can have, each of which costs rows, and
	// a write of its own when it is removed: 4,096 within 64 MiB.
	MinCharge = 16 << 10
	// MaxRefs is how many references one call of [Store.Missing] may have.
	MaxRefs = 1000
	// SweepAge is how long bytes without a reference are usually kept.
	SweepAge = time.Hour
)

// Store persists blobs. Every method but Sweep is scoped to one tenant; sessions of
// different tenants share nothing. Failures are *[session.Error], as those of
// [session.Store].
//
// A session that is cloned passes all its references to the copy, and a session that is
// deleted drops them, each in the transaction of [session.Lifecycle] that does it. A
// rewind drops none.
type Store interface {
	// Put stores bytes together with the reference to them, in one write. A commit that
	// names the blob follows it; if the process dies before that, the blob costs space
	// until the session is deleted. To put the same bytes again changes nothing.
	Put(ctx context.Context, put *Put) (Stored, error)
	// Get returns a blob's bytes. A blob to which the session has no reference is
	// [session.ErrNotFound], whether others have it or not; bytes that are damaged or
	// lost are [session.ErrCorrupt].
	Get(ctx context.Context, sessionID, ref string) ([]byte, error)
	// Missing returns those of the references that the session has to put before a
	// message may name them, each once and in order. The others stay readable for as long
	// as the session exists.
	Missing(ctx context.Context, sessionID string, refs []string) ([]string, error)
	// Size returns how many bytes all blobs of the session's tree count together; see
	// [Charge].
	Size(ctx context.Context, sessionID string) (int64, error)
	// Referenced reports whether any session of the tenant has the blob, or is about to.
	// It serves sweeps of bytes that are kept elsewhere, not sessions.
	Referenced(ctx context.Context, ref string) (bool, error)
	// Sweep removes bytes, of any tenant, that have had no reference for longer than age,
	// of at most limit blobs, and returns of how many. It never removes bytes that a
	// concurrent Put refers to.
	Sweep(ctx context.Context, age time.Duration, limit int) (int, error)
	// Tenant returns the same store scoped to another tenant.
	Tenant(tenant string) Store
}

// Put is a blob to store.
type Put struct {
	// SessionID is a session of the tree that the blob will belong to.
	SessionID string
	Data      []byte
	// Limit is how many bytes all blobs of the tree may count together, each as [Charge]
	// says; 0 is no limit. A blob that exceeds it is [session.ErrTooLarge].
	Limit int64
	// Elsewhere says that another store keeps the bytes: only the reference is written.
	// The bytes are still needed, because they prove that the session may have them.
	Elsewhere bool
}

// Stored is a blob that was put.
type Stored struct {
	Ref  string
	Size int64
	// Total is how many bytes all blobs of the session's tree count together now.
	Total int64
}

// refPrefix begins every reference.
const refPrefix = "sha256:"

// RefOf returns the reference of bytes.
func RefOf(data []byte) string {
	sum := sha256.Sum256(data)
	return refPrefix + hex.EncodeToString(sum[:])
}

// CheckRef returns an error if ref is not a reference.
func CheckRef(ref string) error {
	digits, found := strings.CutPrefix(ref, refPrefix)
	if !found || len(digits) != 2*sha256.Size {
		return session.Invalid("blob", "%.80q is not a reference: it must be %s and %d hexadecimal digits", ref, refPrefix, 2*sha256.Size)
	}
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return session.Invalid("blob", "%.80q is not a reference: it must have lower-case hexadecimal digits", ref)
		}
	}
	return nil
}

// Digits returns the hexadecimal digits of a reference.
func Digits(ref string) string { return strings.TrimPrefix(ref, refPrefix) }

// FromDigits returns the reference with these digits.
func FromDigits(digits string) string { return refPrefix + digits }

// Check returns an error if the blob cannot be stored.
func (p *Put) Check() error {
	if err := session.CheckID(p.SessionID); err != nil {
		return err
	}
	if len(p.Data) > MaxBytes {
		err := session.ErrTooLarge.WithMessage("the blob has %d bytes, at most %d are allowed", len(p.Data), MaxBytes)
		err.Field = "blob"
		return err
	}
	return nil
}

// Charge returns how many bytes a blob of a size counts towards the limit of its session.
func Charge(size int64) int64 { return max(size, MinCharge) }

// Exceeds returns an error if a tree's blobs would count more bytes than the limit.
func (p *Put) Exceeds(total int64) error {
	if p.Limit <= 0 || total <= p.Limit {
		return nil
	}
	err := session.ErrTooLarge.WithMessage(
		"session %s: its blobs would count %d bytes, each at least %d, and at most %d are allowed", p.SessionID, total, MinCharge, p.Limit)
	err.Field = "blobs"
	return err
}

// CheckGet returns an error if no session can have such a blob.
func CheckGet(sessionID, ref string) error {
	if err := session.CheckID(sessionID); err != nil {
		return err
	}
	return CheckRef(ref)
}

// CheckMissing returns an error if the references cannot be looked up, and otherwise
// each of them once.
func CheckMissing(sessionID string, refs []string) ([]string, error) {
	if err := session.CheckID(sessionID); err != nil {
		return nil, err
	}
	if len(refs) > MaxRefs {
		return nil, session.Invalid("blobs", "are %d, at most %d are allowed", len(refs), MaxRefs)
	}
	seen := make(map[string]bool, len(refs))
	out := make([]string, 0, len(refs))
	for _, ref := range refs {
		if err := CheckRef(ref); err != nil {
			return nil, err
		}
		if !seen[ref] {
			seen[ref] = true
			out = append(out, ref)
		}
	}
	return out, nil
}

// NotFound returns the error for a blob to which a session has no reference.
func NotFound(sessionID, ref string) *session.Error {
	return session.ErrNotFound.WithMessage("session %s: blob %s not found", sessionID, ref)
}

// Lost returns the error for a blob to which a session has a reference, but whose bytes
// are gone.
func Lost(ref string) *session.Error {
	return session.ErrCorrupt.WithMessage("blob %s: its bytes are missing", ref)
}

// Pieces returns the parts in which a store keeps bytes. Empty bytes have none.
func Pieces(data []byte) [][]byte {
	var out [][]byte
	for len(data) > 0 {
		n := min(len(data), PieceBytes)
		out = append(out, data[:n:n])
		data = data[n:]
	}
	return out
}

// Verify returns an error if bytes that were read are not those of the reference.
func Verify(ref string, data []byte) error {
	if RefOf(data) != ref {
		return session.ErrCorrupt.WithMessage("blob %s: its %d bytes are damaged", ref, len(data))
	}
	return nil
}
