package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

// blobs is the blob store of one tenant.
type blobs struct {
	b      *Backend
	tenant string
}

var _ blob.Store = (*blobs)(nil)

// blobKey names bytes. Tenants share none.
type blobKey struct{ tenant, ref string }

// heap has the bytes of all blobs.
type heap struct {
	byKey map[blobKey]*bytesOf
	// unused has those without a reference, and when they lost the last one.
	unused map[blobKey]time.Time
}

func newHeap() heap { return heap{map[blobKey]*bytesOf{}, map[blobKey]time.Time{}} }

// bytesOf are the bytes of a blob.
type bytesOf struct {
	data []byte // never changed in place; nil if they are kept elsewhere
	refs int    // how many sessions have the blob
}

// references are the blobs of a session.
type references struct {
	byRef map[string]int64 // to the size
	total int64            // of what they count
}

// maxDepth bounds the callers that are followed to the root of a tree.
const maxDepth = 1000

// rootOf returns the root of a session's tree.
func (b *Backend) rootOf(rec *record) *record {
	for range maxDepth {
		parent := b.find(rec.state.Tenant, rec.state.ParentID)
		if parent == nil {
			break
		}
		rec = parent
	}
	return rec
}

// root finds the root of a session's tree; the caller holds the lock.
func (s *blobs) root(id string) (*record, error) {
	rec := s.b.find(s.tenant, id)
	if rec == nil {
		return nil, session.NotFound(id)
	}
	return s.b.rootOf(rec), nil
}

// Tenant implements [blob.Store].
func (s *blobs) Tenant(tenant string) blob.Store { return &blobs{b: s.b, tenant: orDefault(tenant)} }

// Put implements [blob.Store].
func (s *blobs) Put(ctx context.Context, put *blob.Put) (blob.Stored, error) {
	if err := put.Check(); err != nil {
		return blob.Stored{}, err
	}
	out := blob.Stored{Ref: blob.RefOf(put.Data), Size: int64(len(put.Data))}
	data := append([]byte{}, put.Data...)
	if err := s.b.lock(ctx); err != nil {
		return blob.Stored{}, err
	}
	defer s.b.mu.Unlock()
	root, err := s.root(put.SessionID)
	if err != nil {
		return blob.Stored{}, err
	}
	_, had := root.blobs.byRef[out.Ref]
	if !had {
		if err := put.Exceeds(root.blobs.total + blob.Charge(out.Size)); err != nil {
			return blob.Stored{}, err
		}
	}
	kept := s.b.heap.byKey[blobKey{s.tenant, out.Ref}]
	if kept == nil {
		kept = &bytesOf{}
		s.b.heap.byKey[blobKey{s.tenant, out.Ref}] = kept
	}
	if !put.Elsewhere && kept.data == nil {
		kept.data = data
	}
	if !had {
		s.b.refer(root, out.Ref, out.Size)
	}
	out.Total = root.blobs.total
	return out, nil
}

// refer gives a session a blob that exists.
func (b *Backend) refer(rec *record, ref string, size int64) {
	if rec.blobs.byRef == nil {
		rec.blobs.byRef = map[string]int64{}
	}
	rec.blobs.byRef[ref] = size
	rec.blobs.total += blob.Charge(size)
	key := blobKey{rec.state.Tenant, ref}
	b.heap.byKey[key].refs++
	delete(b.heap.unused, key)
}

// shareBlobs gives a clone the blobs of its source.
func (b *Backend) shareBlobs(from, to *record) {
	for ref, size := range from.blobs.byRef {
		b.refer(to, ref, size)
	}
}

// dropBlobs drops the references of a session that is deleted.
func (b *Backend) dropBlobs(rec *record) {
	for ref := range rec.blobs.byRef {
		key := blobKey{rec.state.Tenant, ref}
		kept := b.heap.byKey[key]
		if kept.refs--; kept.refs == 0 {
			b.heap.unused[key] = b.now()
		}
	}
	rec.blobs = references{}
}

// Get implements [blob.Store].
func (s *blobs) Get(ctx context.Context, sessionID, ref string) ([]byte, error) {
	if err := blob.CheckGet(sessionID, ref); err != nil {
		return nil, err
	}
	data, err := s.find(ctx, sessionID, ref)
	if err != nil {
		return nil, err
	}
	if err := blob.Verify(ref, data); err != nil {
		return nil, err
	}
	return bytes.Clone(data), nil
}

func (s *blobs) find(ctx context.Context, sessionID, ref string) ([]byte, error) {
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	root, err := s.root(sessionID)
	if err != nil {
		return nil, err
	}
	if _, has := root.blobs.byRef[ref]; !has {
		return nil, blob.NotFound(sessionID, ref)
	}
	kept := s.b.heap.byKey[blobKey{s.tenant, ref}]
	if kept.data == nil {
		return nil, blob.Lost(ref)
	}
	return kept.data, nil
}

// Missing implements [blob.Store].
func (s *blobs) Missing(ctx context.Context, sessionID string, refs []string) ([]string, error) {
	refs, err := blob.CheckMissing(sessionID, refs)
	if err != nil {
		return nil, err
	}
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	root, err := s.root(sessionID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(refs, func(ref string) bool {
		_, has := root.blobs.byRef[ref]
		return has
	}), nil
}

// Size implements [blob.Store].
func (s *blobs) Size(ctx context.Context, sessionID string) (int64, error) {
	if err := s.b.rlock(ctx); err != nil {
		return 0, err
	}
	defer s.b.mu.RUnlock()
	root, err := s.root(sessionID)
	if err != nil {
		return 0, err
	}
	return root.blobs.total, nil
}

// Referenced implements [blob.Store].
func (s *blobs) Referenced(ctx context.Context, ref string) (bool, error) {
	if err := blob.CheckRef(ref); err != nil {
		return false, err
	}
	if err := s.b.rlock(ctx); err != nil {
		return false, err
	}
	defer s.b.mu.RUnlock()
	kept := s.b.heap.byKey[blobKey{s.tenant, ref}]
	return kept != nil && kept.refs > 0, nil
}

// Sweep implements [blob.Store].
func (s *blobs) Sweep(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := s.b.lock(ctx); err != nil {
		return 0, err
	}
	defer s.b.mu.Unlock()
	before := s.b.now().Add(-age)
	removed := 0
	for key, at := range s.b.heap.unused {
		if removed >= limit {
			break
		}
		if !at.After(before) {
			delete(s.b.heap.byKey, key)
			delete(s.b.heap.unused, key)
			removed++
		}
	}
	return removed, nil
}
