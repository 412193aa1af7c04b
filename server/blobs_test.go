package server_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// A blob is an attachment that no browser shows or runs, for those who may see the
// session that has it.
func TestBlobs(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		f := s.fill("b/")
		ref := blob.RefOf(hostile)
		path := func(id, ref string) string { return "/sessions/" + url.PathEscape(id) + "/blobs/" + ref }
		for _, id := range []string{f.waiting, f.child} { // the tree shares its blobs
			answer := s.request(http.MethodGet, path(id, ref), nil)
			got, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(got, hostile) {
				t.Fatalf("the blob of %s: %d, %q, %v", id, answer.StatusCode, got, err)
			}
			for name, want := range map[string]string{
				"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff",
				"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "no-store",
				"Content-Disposition":          `attachment; filename="` + ref[7:23] + `.bin"`,
				"Cross-Origin-Resource-Policy": "same-origin", "Accept-Ranges": "none",
			} {
				if got := answer.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		}
		answer := s.request(http.MethodHead, path(f.waiting, ref), nil)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || answer.ContentLength != int64(len(hostile)) {
			t.Errorf("HEAD: %d, %d bytes", answer.StatusCode, answer.ContentLength)
		}
		// Another session of the same user, others' sessions, and references that nobody has.
		s.refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, path(f.done, ref), nil)
		for _, token := range []string{"bob-token", "alice-south-token"} {
			s.as(token).refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, path(f.waiting, ref), nil)
		}
		s.refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, path(f.waiting, blob.RefOf([]byte("else"))), nil)
		for _, bad := range []string{
			"x", ref[7:], "sha256:", "sha256:" + strings.Repeat("G", 64), ref + "0", "sha256:..%2F..%2Fetc", "sha256:" + strings.ToUpper(ref[7:]),
			strings.ToUpper(ref), "..%2F..%2F..%2Fetc%2Fpasswd", "sha256:%00" + ref[8:], "md5:" + ref[7:], "sha256:" + strings.Repeat("%20", 64), "%2e%2e",
		} {
			if refused := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, path(f.waiting, bad), nil); refused.Field != "hash" {
				t.Errorf("%s is refused as %+v", bad, refused)
			}
		}
		if answer := s.as("operator-token").request(http.MethodGet, path(f.waiting, ref), nil); answer.StatusCode != http.StatusOK {
			t.Errorf("an operator gets %d", answer.StatusCode)
		} else {
			_ = answer.Body.Close()
		}
	})
}

// Parts of a blob and conditions are not supported: who asks for them gets all of it, as
// HTTP allows, and is told so. A deleted session has no blobs.
func TestBlobRequests(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{echo()}, nil)
		sessions, blobs := db.Sessions().Tenant("north"), db.Blobs().Tenant("north")
		for _, id := range []string{"s-1", "s-2"} {
			if err := session.Create(t.Context(), sessions, &session.State{ID: id, Agent: "echo", UserID: "alice", Status: session.Active, StreamID: id}); err != nil {
				t.Fatal(err)
			}
		}
		data := []byte("0123456789")
		for _, data := range [][]byte{data, nil} {
			if _, err := blobs.Put(t.Context(), &blob.Put{SessionID: "s-1", Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		path := func(id string, data []byte) string { return "/sessions/" + id + "/blobs/" + blob.RefOf(data) }
		for name, value := range map[string]string{
			"Range": "bytes=2-4", "If-None-Match": "*", "If-Match": `"x"`, "If-Modified-Since": "Mon, 01 Jan 2035 00:00:00 GMT",
		} {
			answer := s.request(http.MethodGet, path("s-1", data), nil, name, value)
			got, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(got, data) || answer.Header.Get("Accept-Ranges") != "none" {
				t.Errorf("with %s: %d, %q, %v", name, answer.StatusCode, got, err)
			}
		}
		answer := s.request(http.MethodGet, path("s-1", nil), nil)
		got, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || len(got) != 0 || answer.ContentLength != 0 {
			t.Errorf("an empty blob: %d, %q, %v", answer.StatusCode, got, err)
		}
		for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodDelete} {
			answer := s.request(method, path("s-1", data), nil)
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s: %d", method, answer.StatusCode)
			}
		}
		if _, err := sessions.Delete(t.Context(), "s-1"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"s-1", "s-2"} { // the one that had it, and one that never had
			s.refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, path(id, data), nil)
		}
	})
}

// A session of the largest blob.
func TestLargeBlob(t *testing.T) {
	t.Parallel()
	db := inMemory(t)
	s := serve(t, db, []*helix.Agent{echo()}, nil)
	state := &session.State{ID: "s-1", Agent: "echo", UserID: "alice", Status: session.Active, StreamID: "s-1"}
	if err := session.Create(t.Context(), db.Sessions().Tenant("north"), state); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), blob.MaxBytes/16)
	put, err := db.Blobs().Tenant("north").Put(t.Context(), &blob.Put{SessionID: "s-1", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	answer := s.request(http.MethodGet, "/sessions/s-1/blobs/"+put.Ref, nil)
	defer answer.Body.Close()
	if got, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// Clients that read blobs slowly hold a bounded number of them, and one user cannot keep
// the others from theirs.
func TestBlobsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		s, _ := serveOnPipes(t, db, []*helix.Agent{echo()}, func(c *server.Config) { c.Limits.ReadTimeout = 200 * time.Millisecond })
		data := bytes.Repeat([]byte("0123456789abcdef"), 2*blob.PieceBytes/16) // more than a connection buffers
		path := func(user string) string { return "/sessions/" + user + "/blobs/" + blob.RefOf(data) }
		for _, user := range []string{"alice", "bob"} {
			state := &session.State{ID: user, Agent: "echo", UserID: user, Status: session.Active, StreamID: user}
			if err := session.Create(t.Context(), db.Sessions().Tenant("north"), state); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Blobs().Tenant("north").Put(t.Context(), &blob.Put{SessionID: user, Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		read := func(answer *http.Response) {
			t.Helper()
			got, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(got, data) {
				t.Errorf("a download: %d, %d bytes, %v", answer.StatusCode, len(got), err)
			}
		}
		one, two := s.request(http.MethodGet, path("alice"), nil), s.request(http.MethodGet, path("alice"), nil)
		defer func() { _, _ = one.Body.Close(), two.Body.Close() }()
		s.refused(http.StatusServiceUnavailable, session.CodeUnavailable, http.MethodGet, path("alice"), nil)
		other := s.as("bob-token").request(http.MethodGet, path("bob"), nil)
		defer func() { _ = other.Body.Close() }()
		for _, answer := range []*http.Response{other, one, two} {
			read(answer)
		}
		again := s.request(http.MethodGet, path("alice"), nil)
		defer func() { _ = again.Body.Close() }()
		read(again)
	})
}
