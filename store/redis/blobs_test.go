package redis_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
)

// blobKeys returns the keys of the bytes of blobs.
func blobKeys(t *testing.T, client goredis.UniversalClient, prefix string) (out []string) {
	t.Helper()
	for _, key := range keysOf(t, client, prefix) {
		if strings.Contains(key, "{+blob/") {
			out = append(out, key)
		}
	}
	return out
}

func newSession(t *testing.T, b *redis.Backend, id string) {
	t.Helper()
	if err := session.Create(t.Context(), b.Sessions(), &session.State{ID: id, Agent: "a", Status: session.Active, StreamID: id}); err != nil {
		t.Fatal(err)
	}
}

// TestFirstBlob requires that programs from before blobs may use a store until the first
// blob is put, and no longer.
func TestFirstBlob(t *testing.T) {
	t.Parallel()
	ctx, prefix := t.Context(), newPrefix()
	b, client := open(t, redis.Config{URL: single(t), Prefix: prefix}), connect(t, single(t))
	newSession(t, b, "a")
	key := prefix + ":{+format}:readable"
	if _, err := client.Get(ctx, key).Result(); !errors.Is(err, goredis.Nil) {
		t.Errorf("a format is required before the first blob: %v", err)
	}
	if _, err := b.Blobs().Put(ctx, &blob.Put{SessionID: "a", Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if got := client.Get(ctx, key).Val(); got != "2" {
		t.Errorf("the required format is %q", got)
	}
}

// TestBlobTimeToLive requires that bytes expire until a session has them for certain, and
// that an interrupted put is neither readable nor counted as present.
func TestBlobTimeToLive(t *testing.T) {
	t.Parallel()
	ctx, prefix := t.Context(), newPrefix()
	b, client := open(t, redis.Config{URL: single(t), Prefix: prefix}), connect(t, single(t))
	newSession(t, b, "a")
	data := bytes.Repeat([]byte("x"), blob.PieceBytes+1)
	ref := blob.RefOf(data)
	if err := b.ClaimBlob(ctx, "a", data, false); err != nil {
		t.Fatal(err)
	}
	keys := blobKeys(t, client, prefix)
	if len(keys) != 2 {
		t.Errorf("the keys are %q", keys)
	}
	for _, key := range keys {
		if ttl := client.TTL(ctx, key).Val(); ttl <= 0 || ttl > blob.SweepAge {
			t.Errorf("%s lives for %s before it is referenced", key, ttl)
		}
	}
	if _, err := b.Blobs().Get(ctx, "a", ref); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("get without a reference: %v", err)
	}
	if used, err := b.Blobs().Referenced(ctx, ref); err != nil || !used {
		t.Errorf("a blob that is about to be referenced: %v, %v", used, err)
	}
	// The process dies before it confirms.
	if err := b.ClaimBlob(ctx, "a", data, true); err != nil {
		t.Fatal(err)
	}
	missing := func(want int) {
		t.Helper()
		if got, err := b.Blobs().Missing(ctx, "a", []string{ref}); err != nil || len(got) != want {
			t.Errorf("missing: %q, %v", got, err)
		}
	}
	missing(1)
	if _, err := b.Blobs().Put(ctx, &blob.Put{SessionID: "a", Data: data}); err != nil {
		t.Fatal(err)
	}
	missing(0)
	for _, key := range blobKeys(t, client, prefix) {
		if ttl := client.TTL(ctx, key).Val(); ttl != -1 {
			t.Errorf("%s lives for %s although it is referenced", key, ttl)
		}
	}
	if size, err := b.Blobs().Size(ctx, "a"); err != nil || size != int64(len(data)) {
		t.Errorf("the blobs have %d bytes, %v", size, err)
	}
}

// TestKilledPut lets a process die at each point of a put and the time to live pass, and
// requires that nothing is left but perhaps a reference that does not count as present, and
// that putting again works as if nothing had happened.
func TestKilledPut(t *testing.T) {
	t.Parallel()
	for _, referred := range []bool{false, true} {
		ctx, prefix := t.Context(), newPrefix()
		b, client := open(t, redis.Config{URL: single(t), Prefix: prefix}.WithSettling(time.Millisecond)), connect(t, single(t))
		newSession(t, b, "a")
		data := bytes.Repeat([]byte("x"), blob.PieceBytes+1)
		ref := blob.RefOf(data)
		if err := b.ClaimBlob(ctx, "a", data, referred); err != nil {
			t.Fatal(err)
		}
		for _, key := range blobKeys(t, client, prefix) {
			if ttl := client.TTL(ctx, key).Val(); ttl <= 0 || ttl > blob.SweepAge {
				t.Errorf("%s lives for %s", key, ttl)
			}
			if err := client.PExpire(ctx, key, time.Millisecond).Err(); err != nil { // instead of waiting for an hour
				t.Fatal(err)
			}
		}
		eventually.Poll(t, "the keys expire", func() bool { return len(blobKeys(t, client, prefix)) == 0 })
		if missing, err := b.Blobs().Missing(ctx, "a", []string{ref}); err != nil || len(missing) != 1 {
			t.Errorf("referred %t: missing: %q, %v", referred, missing, err)
		}
		if used, err := b.Blobs().Referenced(ctx, ref); err != nil || used {
			t.Errorf("referred %t: referenced: %t, %v", referred, used, err)
		}
		if _, err := b.Sessions().Clone(ctx, &session.Clone{From: "a", To: session.State{ID: "copy", StreamID: "copy"}}); err != nil {
			t.Fatal(err)
		}
		if size, err := b.Blobs().Size(ctx, "copy"); err != nil || size != 0 {
			t.Errorf("referred %t: a clone has got %d bytes, %v", referred, size, err)
		}
		stored, err := b.Blobs().Put(ctx, &blob.Put{SessionID: "a", Data: data})
		if err != nil || stored.Total != int64(len(data)) {
			t.Errorf("referred %t: put again: %+v, %v", referred, stored, err)
		}
		if got, err := b.Blobs().Get(ctx, "a", ref); err != nil || !bytes.Equal(got, data) {
			t.Errorf("referred %t: got %d bytes, %v", referred, len(got), err)
		}
		if _, err := b.Sessions().Delete(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Blobs().Sweep(ctx, 0, 100); err != nil || n != 1 || len(blobKeys(t, client, prefix)) > 0 {
			t.Errorf("referred %t: swept %d, %v, and %q are left", referred, n, err, blobKeys(t, client, prefix))
		}
	}
}

// TestUnconfirmedClone requires that a clone keeps its blobs whose process died before it
// confirmed them, also if the source is deleted.
func TestUnconfirmedClone(t *testing.T) {
	t.Parallel()
	ctx, prefix := t.Context(), newPrefix()
	b := open(t, redis.Config{URL: single(t), Prefix: prefix}.WithSettling(time.Millisecond))
	newSession(t, b, "a")
	data := []byte("shared")
	stored, err := b.Blobs().Put(ctx, &blob.Put{SessionID: "a", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	newSession(t, b, "copy")
	if err := b.ClaimBlob(ctx, "copy", data, true); err != nil { // as a clone that was interrupted leaves it
		t.Fatal(err)
	}
	if _, err := b.Sessions().Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n, err := b.Blobs().Sweep(ctx, 0, 100); err != nil || n != 0 {
			t.Errorf("swept %d, %v", n, err)
		}
	}
	if got, err := b.Blobs().Get(ctx, "copy", stored.Ref); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %q, %v", got, err)
	}
	if missing, err := b.Blobs().Missing(ctx, "copy", []string{stored.Ref}); err != nil || len(missing) != 0 {
		t.Errorf("missing: %q, %v", missing, err)
	}
}

// TestExpiredBlobs requires that the bytes of conversations that have expired are removed.
func TestExpiredBlobs(t *testing.T) {
	t.Parallel()
	ctx, prefix := t.Context(), newPrefix()
	b, client := open(t, redis.Config{URL: single(t), Prefix: prefix, SessionTTL: 200 * time.Millisecond}.WithSettling(time.Millisecond)), connect(t, single(t))
	newSession(t, b, "before") // expires from its creation on
	for _, id := range []string{"before", "after"} {
		if id == "after" {
			newSession(t, b, id)
		}
		if _, err := b.Blobs().Put(ctx, &blob.Put{SessionID: id, Data: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	eventually.Poll(t, "a sweep after the sessions' expiry removes all", func() bool {
		if _, err := b.Blobs().Sweep(ctx, 0, 100); err != nil {
			t.Fatal(err)
		}
		return len(blobKeys(t, client, prefix)) == 0
	})
	for _, key := range keysOf(t, client, prefix) {
		if strings.HasSuffix(key, "}:B") {
			t.Errorf("%s is left", key)
		}
	}
}
