package mapstore

import (
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

// kept are the bytes of a blob. A database keeps them in several rows.
type kept struct {
	data     []byte // nil if they are kept elsewhere
	unusedAt time.Time
}

// Blobs implements [store.Backend].
func (b *Backend) Blobs() blob.Store { return &blobs{b, session.DefaultTenant} }

// Tenant implements [blob.Store].
func (s *blobs) Tenant(tenant string) blob.Store { return &blobs{s.b, tenantOr(tenant)} }

// rootOf follows a session's callers to the session that owns the blobs of the tree.
func (b *Backend) rootOf(rec *record) session.Key {
	key := session.Key{Tenant: rec.state.Tenant, ID: rec.state.ID}
	for range len(b.sessions) {
		above := session.Key{Tenant: key.Tenant, ID: b.sessions[key].state.ParentID}
		if b.sessions[above] == nil {
			break
		}
		key = above
	}
	return key
}

// use calls do with the owner of a session's blobs, and the sizes of these by reference.
func (s *blobs) use(ctx context.Context, id string, do func(root session.Key, sizes map[string]int64) error) error {
	return (&sessions{s.b, s.tenant}).view(ctx, id, func(rec *record) error {
		root := s.b.rootOf(rec)
		return do(root, s.b.references[root])
	})
}

// Put implements [blob.Store].
func (s *blobs) Put(ctx context.Context, put *blob.Put) (blob.Stored, error) {
	if err := put.Check(); err != nil {
		return blob.Stored{}, err
	}
	out := blob.Stored{Ref: blob.RefOf(put.Data), Size: int64(len(put.Data))}
	err := s.use(ctx, put.SessionID, func(root session.Key, sizes map[string]int64) error {
		out.Total = total(sizes)
		if _, has := sizes[out.Ref]; !has {
			out.Total += blob.Charge(out.Size)
			if err := put.Exceeds(out.Total); err != nil {
				return err
			}
		}
		s.b.refer(root, out.Ref, out.Size)
		if data := s.b.bytes[key(s.tenant, out.Ref)]; !put.Elsewhere && data.data == nil {
			data.data = append([]byte{}, put.Data...)
		}
		return nil
	})
	if err != nil {
		return blob.Stored{}, err
	}
	return out, nil
}

// refer gives a session a blob. The caller holds the lock.
func (b *Backend) refer(to session.Key, ref string, size int64) {
	if b.references[to] == nil {
		b.references[to] = map[string]int64{}
	}
	b.references[to][ref] = size
	if b.bytes[key(to.Tenant, ref)] == nil {
		b.bytes[key(to.Tenant, ref)] = &kept{}
	}
}

// drop drops the blobs of a session that is deleted. The caller holds the lock.
func (b *Backend) drop(from session.Key) {
	for ref := range b.references[from] {
		b.bytes[key(from.Tenant, ref)].unusedAt = b.now()
	}
	delete(b.references, from)
}

// used reports whether any session has a blob. The caller holds the lock.
func (b *Backend) used(which session.Key) bool {
	for of, sizes := range b.references {
		if _, has := sizes[which.ID]; has && of.Tenant == which.Tenant {
			return true
		}
	}
	return false
}

// key names a blob of a tenant.
func key(tenant, ref string) session.Key { return session.Key{Tenant: tenant, ID: ref} }

func total(sizes map[string]int64) (sum int64) {
	for _, size := range sizes {
		sum += blob.Charge(size)
	}
	return sum
}

// Get implements [blob.Store].
func (s *blobs) Get(ctx context.Context, sessionID, ref string) (data []byte, err error) {
	if err := blob.CheckGet(sessionID, ref); err != nil {
		return nil, err
	}
	err = s.use(ctx, sessionID, func(_ session.Key, sizes map[string]int64) error {
		if _, has := sizes[ref]; !has {
			return blob.NotFound(sessionID, ref)
		}
		data = slices.Clone(s.b.bytes[key(s.tenant, ref)].data)
		if data == nil {
			return blob.Lost(ref)
		}
		return blob.Verify(ref, data)
	})
	return data, err
}

// Missing implements [blob.Store].
func (s *blobs) Missing(ctx context.Context, sessionID string, refs []string) ([]string, error) {
	refs, err := blob.CheckMissing(sessionID, refs)
	if err != nil {
		return nil, err
	}
	err = s.use(ctx, sessionID, func(_ session.Key, sizes map[string]int64) error {
		refs = slices.DeleteFunc(refs, func(ref string) bool { _, has := sizes[ref]; return has })
		return nil
	})
	return refs, err
}

// Size implements [blob.Store].
func (s *blobs) Size(ctx context.Context, sessionID string) (size int64, err error) {
	err = s.use(ctx, sessionID, func(_ session.Key, sizes map[string]int64) error {
		size = total(sizes)
		return nil
	})
	return size, err
}

// Referenced implements [blob.Store].
func (s *blobs) Referenced(ctx context.Context, ref string) (bool, error) {
	if err := blob.CheckRef(ref); err != nil {
		return false, err
	}
	if err := s.b.lock(ctx); err != nil {
		return false, err
	}
	defer s.b.mu.Unlock()
	return s.b.used(key(s.tenant, ref)), nil
}

// Sweep implements [blob.Store].
func (s *blobs) Sweep(ctx context.Context, age time.Duration, limit int) (removed int, err error) {
	if err := s.b.lock(ctx); err != nil {
		return 0, err
	}
	defer s.b.mu.Unlock()
	before := s.b.now().Add(-age)
	for which, data := range s.b.bytes {
		if removed < limit && !data.unusedAt.After(before) && !s.b.used(which) {
			delete(s.b.bytes, which)
			removed++
		}
	}
	return removed, nil
}
