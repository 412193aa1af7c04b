package blob

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix/session"
)

// Bytes keeps the bytes of blobs apart from the references to them, such as in a
// directory that all processes share.
type Bytes interface {
	// Hold keeps others, in any process, from holding the same blob until release is
	// called.
	Hold(ctx context.Context, tenant, ref string) (release func(), err error)
	// Write stores bytes durably. If they are stored already, it does nothing.
	Write(ctx context.Context, tenant, ref string, data []byte) error
	// Read returns bytes, or [session.ErrNotFound].
	Read(ctx context.Context, tenant, ref string) ([]byte, error)
	// Has reports whether bytes are stored.
	Has(ctx context.Context, tenant, ref string) (bool, error)
	// Remove removes bytes, and reports whether they were stored.
	Remove(ctx context.Context, tenant, ref string) (bool, error)
	// Each calls do for blobs whose bytes were written longer than age ago, each once,
	// until do fails or it has looked at limit files, young ones included. The next call
	// continues behind the last blob, and all calls together come by all blobs again and
	// again.
	Each(ctx context.Context, age time.Duration, limit int, do func(tenant, ref string) error) error
}

// Apart returns a store that keeps references in refs and bytes elsewhere. It still reads
// the bytes that refs has kept itself.
func Apart(refs Store, bytes Bytes) Store {
	return &apart{refs: refs, bytes: bytes, tenant: session.DefaultTenant}
}

type apart struct {
	refs   Store
	bytes  Bytes
	tenant string
}

// Tenant implements [Store].
func (a *apart) Tenant(tenant string) Store {
	if tenant == "" {
		tenant = session.DefaultTenant
	}
	return &apart{refs: a.refs.Tenant(tenant), bytes: a.bytes, tenant: tenant}
}

// Put implements [Store]. The reference comes first: from then on no sweep removes the
// bytes, so it is certain whether they have to be written. If the process dies in
// between, nothing names the blob, and Missing reports it.
func (a *apart) Put(ctx context.Context, put *Put) (Stored, error) {
	if err := put.Check(); err != nil {
		return Stored{}, err
	}
	ref := RefOf(put.Data)
	release, err := a.bytes.Hold(ctx, a.tenant, ref)
	if err != nil {
		return Stored{}, err
	}
	defer release()
	only := *put
	only.Elsewhere = true
	stored, err := a.refs.Put(ctx, &only)
	if err != nil {
		return Stored{}, err
	}
	if err := a.bytes.Write(ctx, a.tenant, ref, put.Data); err != nil {
		return Stored{}, err
	}
	return stored, nil
}

// Get implements [Store].
func (a *apart) Get(ctx context.Context, sessionID, ref string) ([]byte, error) {
	if err := CheckGet(sessionID, ref); err != nil {
		return nil, err
	}
	missing, err := a.refs.Missing(ctx, sessionID, []string{ref})
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, NotFound(sessionID, ref)
	}
	data, err := a.bytes.Read(ctx, a.tenant, ref)
	if errors.Is(err, session.ErrNotFound) {
		return a.refs.Get(ctx, sessionID, ref)
	}
	if err != nil {
		return nil, err
	}
	return data, Verify(ref, data)
}

// Missing implements [Store].
func (a *apart) Missing(ctx context.Context, sessionID string, refs []string) ([]string, error) {
	refs, err := CheckMissing(sessionID, refs)
	if err != nil {
		return nil, err
	}
	unknown, err := a.refs.Missing(ctx, sessionID, refs)
	if err != nil {
		return nil, err
	}
	lacks := make(map[string]bool, len(unknown))
	for _, ref := range unknown {
		lacks[ref] = true
	}
	var out []string
	for _, ref := range refs {
		if !lacks[ref] {
			found, err := a.has(ctx, sessionID, ref)
			if err != nil {
				return nil, err
			}
			if found {
				continue
			}
		}
		out = append(out, ref)
	}
	return out, nil
}

// has reports whether the bytes of a blob that the session may read are stored.
func (a *apart) has(ctx context.Context, sessionID, ref string) (bool, error) {
	found, err := a.bytes.Has(ctx, a.tenant, ref)
	if err != nil || found {
		return found, err
	}
	_, err = a.refs.Get(ctx, sessionID, ref)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, session.ErrCorrupt), errors.Is(err, session.ErrNotFound):
		return false, nil
	}
	return false, err
}

// Size implements [Store].
func (a *apart) Size(ctx context.Context, sessionID string) (int64, error) {
	return a.refs.Size(ctx, sessionID)
}

// Referenced implements [Store].
func (a *apart) Referenced(ctx context.Context, ref string) (bool, error) {
	return a.refs.Referenced(ctx, ref)
}

const (
	// sweepLooks is how many files a sweep looks at: it asks the store for references to
	// each, and a directory may have millions.
	sweepLooks = 10_000
	// sweepPatience is how long a sweep waits to hold a blob. Who holds it is putting it,
	// so there is nothing to remove.
	sweepPatience = time.Second
)

// errEnough ends an iteration.
var errEnough = errors.New("enough")

// Sweep implements [Store]. Bytes are removed while they are held, as Put holds them.
// Where there are many, one call looks at some of them, and the next one at others.
func (a *apart) Sweep(ctx context.Context, age time.Duration, limit int) (int, error) {
	if _, err := a.refs.Sweep(ctx, age, limit); err != nil || limit <= 0 {
		return 0, err
	}
	removed := 0
	err := a.bytes.Each(ctx, age, sweepLooks, func(tenant, ref string) error {
		gone, err := a.removeUnreferenced(ctx, tenant, ref)
		if gone {
			removed++
		}
		if err == nil && removed >= limit {
			err = errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return removed, err
}

func (a *apart) removeUnreferenced(ctx context.Context, tenant, ref string) (bool, error) {
	refs := a.refs.Tenant(tenant)
	if used, err := refs.Referenced(ctx, ref); err != nil || used {
		return false, err
	}
	waiting, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	release, err := a.bytes.Hold(waiting, tenant, ref)
	if waiting.Err() != nil && ctx.Err() == nil && err != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer release()
	if used, err := refs.Referenced(ctx, ref); err != nil || used {
		return false, err
	}
	return a.bytes.Remove(ctx, tenant, ref)
}
