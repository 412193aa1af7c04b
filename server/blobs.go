package server

import (
	"net/http"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

// mediaBlob is the media type of every blob. Nobody knows what an agent has put.
const mediaBlob = "application/octet-stream"

func blobRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/sessions/{id}/blobs/{hash}",
		summary: "Download bytes that belong to a session, by the reference that a message names: sha256: and 64 digits.",
		answers: []answer{{status: http.StatusOK, media: mediaBlob}}, handle: (*exchange).blob,
	}}
}

// blob responds with a blob as an attachment. Its bytes may be a page or a script that an
// agent was made to write: no browser may show or run them on the server's origin.
func (x *exchange) blob() error {
	ctx, ref := x.r.Context(), x.r.PathValue("hash")
	state, err := x.named(ctx)
	if err != nil {
		return err
	}
	if err := blob.CheckRef(ref); err != nil {
		named := *session.AsError(err)
		named.Field = "hash"
		return &named
	}
	done, err := x.hold(ctx, x.server.blobs)
	if err != nil {
		return err
	}
	defer done() // once the client has read it
	data, err := x.server.cfg.Backend.Blobs().Tenant(x.who.Tenant).Get(ctx, state.ID, ref)
	if err != nil {
		return err
	}
	header := x.w.Header()
	header.Set("Content-Disposition", `attachment; filename="`+blob.Digits(ref)[:16]+`.bin"`)
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Accept-Ranges", "none")
	x.write(http.StatusOK, mediaBlob, data)
	return nil
}
