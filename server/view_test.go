package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// What the model is sent of a session is read like its messages, page by page, and
// reserved state is never shown.
func TestModelView(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		sessions := db.Sessions().Tenant("north")
		state := &session.State{ID: "viewed", Agent: "echo", StreamID: "viewed", Status: session.Active, UserID: "alice"}
		state.Custom.Set("shown", json.RawMessage("1"))
		state.Custom.Set(session.ReservedPrefix+"secret", json.RawMessage("2"))
		if err := session.Create(t.Context(), sessions, state); err != nil {
			t.Fatal(err)
		}
		var messages []session.Message
		for i := range 6 {
			m := session.UserText(fmt.Sprint("text ", i))
			m.ID = fmt.Sprint("m", i)
			messages = append(messages, m)
		}
		marker, err := session.Compaction{Kind: session.CompactionSummary, Kept: 2}.Marker("summary")
		if err != nil {
			t.Fatal(err)
		}
		marker.ID = "marker"
		messages = append(messages[:4:4], append([]session.Message{marker}, messages[4:]...)...)
		if _, err := session.AppendMessages(t.Context(), sessions, "viewed", messages); err != nil {
			t.Fatal(err)
		}
		read := func(query string) wire.MessagePage {
			return call[wire.MessagePage](s, http.StatusOK, http.MethodGet, "/sessions/viewed/messages"+query, nil)
		}
		ids := func(page wire.MessagePage) string {
			var out []string
			for i := range page.Items {
				out = append(out, page.Items[i].ID)
			}
			return strings.Join(out, " ")
		}
		for query, want := range map[string]string{
			"":                            "m0 m1 m2 m3 marker m4 m5",
			"?view=all":                   "m0 m1 m2 m3 marker m4 m5",
			"?view=model":                 "marker m2 m3 m4 m5",
			"?view=model&offset=3":        "m4 m5",
			"?view=model&offset=9":        "",
			"?view=model&limit=2":         "marker m2",
			"?view=model&limit=1&total=1": "marker",
		} {
			if got := ids(read(query)); got != want {
				t.Errorf("%s lists %q, not %q", query, got, want)
			}
		}
		first := read("?view=model&limit=2&total=true")
		if !first.HasMore || first.Total == nil || *first.Total != 5 || ids(read("?view=model&cursor="+first.Next)) != "m3 m4 m5" {
			t.Errorf("the first page is %+v", first)
		}
		for _, query := range []string{"?view=people", "?view=model&cursor=x", "?view=model&limit=0"} {
			s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/sessions/viewed/messages"+query, nil)
		}
		// A marker between two pages moves the view, so the second page would repeat or skip messages.
		next, err := session.Compaction{Kind: session.CompactionSummary, Kept: 1}.Marker("another")
		if err != nil {
			t.Fatal(err)
		}
		next.ID = "next"
		if _, err := session.AppendMessages(t.Context(), sessions, "viewed", []session.Message{session.UserText("more"), next}); err != nil {
			t.Fatal(err)
		}
		stale := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/sessions/viewed/messages?view=model&cursor="+first.Next, nil)
		if stale.Field != "cursor" || !strings.Contains(stale.Message, "from the beginning") {
			t.Errorf("a cursor of the view before is refused as %+v", stale)
		}
		if again := read("?view=model&limit=1"); ids(again) != "next" || len(read("?view=model&cursor="+again.Next).Items) != 1 {
			t.Errorf("the view after it is %+v", again)
		}
		s.refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, "/sessions/nobody/messages?view=model", nil)
		s.as("bob-token").refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, "/sessions/viewed/messages?view=model", nil)

		for _, path := range []string{"/sessions/viewed", "/sessions/viewed/snapshot"} {
			raw := call[json.RawMessage](s, http.StatusOK, http.MethodGet, path, nil)
			if !strings.Contains(string(raw), `"shown":1`) || strings.Contains(string(raw), "secret") {
				t.Errorf("%s shows %s", path, raw)
			}
		}
		s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, "/start", map[string]any{
			"agentType": "echo", "message": "hi", "state": map[string]any{"helix:secret": 1},
		})
	})
}
