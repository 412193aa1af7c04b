package server_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

func TestTasks(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		north := db.Sessions().Tenant("north")
		task := func(id string) session.Task {
			return session.Task{ID: id, Kind: "work", Agent: "nobody", Body: []byte(`{"n":1}`)}
		}
		if err := north.PutTasks(t.Context(), []session.Task{task("a/1"), task("b"), task("c")}); err != nil {
			t.Fatal(err)
		}
		if err := db.Sessions().Tenant("south").PutTasks(t.Context(), []session.Task{task("theirs")}); err != nil {
			t.Fatal(err)
		}
		held, err := north.ClaimTask(t.Context(), session.TaskClaim{TaskRef: session.TaskRef{ID: "a/1"}, Owner: "me", TTL: time.Hour})
		if err == nil {
			err = north.FinishTask(t.Context(), held.Ref(), held.Fence(), session.TaskResult{Outcome: session.TaskGivenUp, Error: "full"})
		}
		if err != nil {
			t.Fatal(err)
		}

		operator := s.as("operator-token")
		list := func(query string) (ids []string, next string) {
			t.Helper()
			page := call[wire.Tasks](operator, http.StatusOK, http.MethodGet, "/tasks"+query, nil)
			for i := range page.Items {
				ids = append(ids, page.Items[i].ID)
			}
			return ids, page.Next
		}
		ids, next := list("?limit=2")
		rest, _ := list("?limit=2&cursor=" + url.QueryEscape(next))
		if got := strings.Join(append(ids, rest...), " "); got != "a/1 b c" {
			t.Errorf("the operator is shown %s", got)
		}
		if ids, _ := list("?givenUp=true"); strings.Join(ids, " ") != "a/1" {
			t.Errorf("given up are %v", ids)
		}
		answer := s.as("process-token").request(http.MethodGet, "/metrics", nil)
		raw, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		metrics := string(raw)
		for _, line := range []string{"helix_tasks_due 3\n", "helix_tasks_given_up 1\n", "helix_tasks_running 0\n", `helix_task_attempts_total{outcome="done"} 0`} {
			if !strings.Contains(metrics, line) {
				t.Errorf("the metrics do not have %s", line)
			}
		}

		name := wire.TaskName{ID: "a/1"}
		if got := call[wire.TaskName](operator, http.StatusOK, http.MethodPost, "/tasks/retry", name); got != name {
			t.Errorf("the answer is %+v", got)
		}
		if ids, _ := list("?givenUp=true"); len(ids) != 0 {
			t.Errorf("given up are still %v", ids)
		}
		call[wire.TaskName](operator, http.StatusOK, http.MethodPost, "/tasks/drop", name)
		for _, path := range []string{"/tasks/retry", "/tasks/drop"} {
			operator.refused(http.StatusNotFound, session.CodeNotFound, http.MethodPost, path, name)
			operator.refused(http.StatusNotFound, session.CodeNotFound, http.MethodPost, path, wire.TaskName{ID: "theirs"})
			operator.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, path, map[string]any{})
			operator.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, path, wire.TaskName{ID: strings.Repeat("x", 300)})
			s.as("alice-token").refused(http.StatusForbidden, session.CodeNotAllowed, http.MethodPost, path, wire.TaskName{ID: "b"})
		}
		operator.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/tasks?cursor=x", nil)
		operator.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/tasks?limit=1000", nil)
		s.as("alice-token").refused(http.StatusForbidden, session.CodeNotAllowed, http.MethodGet, "/tasks", nil)
		if ids, _ := list(""); strings.Join(ids, " ") != "b c" {
			t.Errorf("left are %v", ids)
		}
	})
}
