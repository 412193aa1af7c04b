package skills_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/models"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/store/memory"
)

// requests has an agent with twenty skills load some of them, and returns what its model was
// asked.
func requests(t *testing.T) []llm.Request {
	t.Helper()
	var list []skill.Skill
	for i := range 20 {
		list = append(list, one(fmt.Sprintf("skill-%02d", i), fmt.Sprintf("Do <number> %d & \"more\".", i), skill.File{Path: "a.md", Content: []byte("A\n")}))
	}
	loading := func(n int) scripted.Part {
		return scripted.Calling(skills.LoadTool, map[string]string{"name": fmt.Sprintf("skill-%02d", n)})
	}
	model := scripted.New(
		scripted.Reply(loading(3)), scripted.Reply(loading(7), loading(11)), scripted.Call(skills.ReadTool, map[string]string{"name": "skill-07", "path": "a.md"}),
		scripted.Reply(loading(3)), scripted.Text("Done."), scripted.Text("Again."),
	)
	agent := &helix.Agent{
		Name: "a", Model: model, Instructions: "Help.",
		Extensions: []helix.Extension{skills.New(skills.Config{Provider: skill.Static(list...), Preload: []string{"skill-01"}})},
	}
	db := memory.New(memory.Config{})
	rt, err := local.New(local.Config{Backend: db})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = rt.Shutdown(context.Background())
		_ = db.Close()
	})
	for _, message := range []session.Message{helix.UserText("Hi!"), skills.Activate(helix.UserText("More!"), "skill-19")} {
		run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s", Message: message})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := run.Result(t.Context()); err != nil || res.Status != helix.Completed {
			t.Fatal(res, err)
		}
	}
	return model.Requests()
}

// Loading a skill leaves the bytes at the beginning of the prompt as they were, on the wire of
// every provider.
func TestLoadingKeepsThePrefix(t *testing.T) {
	t.Parallel()
	all := requests(t)
	if len(all) != 6 {
		t.Fatalf("the model was asked %d times", len(all))
	}
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest) // the request is all that matters
	}))
	defer server.Close()
	for provider, transcript := range map[string]string{
		"openai/gpt-5@" + server.URL + "/v1": "input", "openai-chat/gpt-5@" + server.URL + "/v1": "messages",
		"anthropic/claude-sonnet-4-5@" + server.URL: "messages", "gemini/gemini-2.5-pro@" + server.URL: "contents",
	} {
		model, err := models.OpenWithKey(provider, "key")
		if err != nil {
			t.Fatal(err)
		}
		for _, cache := range []llm.Cache{{}, {Prefix: true, LatestTurn: true}} {
			var before map[string]json.RawMessage
			for i := range all {
				request := all[i]
				request.Settings.Cache = cache
				body = nil
				if _, err := model.Generate(t.Context(), &request, func(llm.Delta) {}); err == nil || body == nil {
					t.Fatalf("%s: nothing was sent: %v", provider, err)
				}
				var now map[string]json.RawMessage
				if err := json.Unmarshal(unmarked(body), &now); err != nil {
					t.Fatal(err)
				}
				for name, value := range before {
					switch {
					case name != transcript && !bytes.Equal(value, now[name]):
						t.Errorf("%s: %s of request %d has changed", provider, name, i+1)
					case name == transcript && !bytes.HasPrefix(now[name], bytes.TrimSuffix(value, []byte("]"))):
						t.Errorf("%s: the messages of request %d do not begin with those of the one before", provider, i+1)
					}
				}
				if len(now[transcript]) < 10 {
					t.Fatalf("%s has no %s: %s", provider, transcript, body)
				}
				before = now
			}
		}
	}
}

// unmarked removes cache marks, which say where to look and are no content.
func unmarked(body []byte) []byte {
	for _, mark := range []string{`,"cache_control":{"type":"ephemeral"}`, `"cache_control":{"type":"ephemeral"},`} {
		body = bytes.ReplaceAll(body, []byte(mark), nil)
	}
	return body
}
