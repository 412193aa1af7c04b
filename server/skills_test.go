package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// perUser has skills of each user's own.
type perUser struct{ skill.Provider }

func (p perUser) of(scope skill.Scope) skill.Provider {
	if scope.UserID == "away" {
		panic("no")
	}
	return skill.Static(skill.Skill{
		Metadata: skill.Metadata{Name: "all", Description: "For all."}, Body: "Do.",
	}, skill.Skill{
		Metadata: skill.Metadata{Name: scope.Tenant + "-" + scope.UserID, Description: "For " + scope.Agent + "."}, Body: "Do it for " + scope.UserID + ".",
	})
}

func (p perUser) List(ctx context.Context, scope skill.Scope) ([]skill.Metadata, error) {
	return p.of(scope).List(ctx, scope)
}

func (p perUser) Load(ctx context.Context, scope skill.Scope, name string) (*skill.Skill, error) {
	return p.of(scope).Load(ctx, scope, name)
}

func skilled() *helix.Agent {
	return &helix.Agent{
		Name: "skilled", Extensions: []helix.Extension{skills.New(skills.Config{Provider: perUser{}})},
		Model: speaker(func(request *llm.Request) scripted.Step {
			switch text := lastText(request); {
			case strings.HasPrefix(text, "load "):
				return scripted.Call(skills.LoadTool, map[string]string{"name": strings.TrimPrefix(text, "load ")})
			default:
				return scripted.Text("I read: " + text)
			}
		}),
	}
}

func TestSkills(t *testing.T) {
	t.Parallel()
	internal := skilled()
	internal.Name, internal.Internal = "hidden", true
	s := serve(t, inMemory(t), []*helix.Agent{skilled(), echo(), internal}, nil)
	for token, want := range map[string]string{"alice-token": "all north-alice", "bob-south-token": "all south-bob"} {
		var got []string
		for _, one := range call[wire.Skills](s.as(token), http.StatusOK, http.MethodGet, "/agents/skilled/skills", nil).Items {
			got = append(got, one.Name)
			if one.Digest == "" || one.Description == "" {
				t.Errorf("%+v", one)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s sees %v", token, got)
		}
	}
	if got := call[wire.Skills](s, http.StatusOK, http.MethodGet, "/agents/echo/skills", nil); got.Items == nil || len(got.Items) != 0 {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"hidden", "none"} {
		s.refused(http.StatusNotFound, session.CodeUnknownAgent, http.MethodGet, "/agents/"+name+"/skills", nil)
	}
	s.as("").refused(http.StatusUnauthorized, wire.CodeUnauthorized, http.MethodGet, "/agents/skilled/skills", nil)
	var tools []string
	for _, a := range call[wire.Agents](s, http.StatusOK, http.MethodGet, "/agents", nil).Items {
		for _, tool := range a.Tools {
			if a.Name == "skilled" {
				tools = append(tools, tool.Name)
			}
			if strings.Contains(string(tool.InputSchema), "alice") {
				t.Errorf("the list for everybody names a user's skills: %s", tool.InputSchema)
			}
		}
	}
	if strings.Join(tools, " ") != "load_skill read_skill_file" {
		t.Errorf("%v", tools)
	}
}

func TestSkillsAway(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{skilled()}, func(c *server.Config) {
		c.Authenticate = func(*http.Request) (server.Identity, error) {
			return server.Identity{User: "away", Tenant: "north"}, nil
		}
	})
	s.refused(http.StatusServiceUnavailable, session.CodeUnavailable, http.MethodGet, "/agents/skilled/skills", nil)
}

// parts returns the kinds of the parts of a chat's messages, with the names of skills.
func parts(messages []aisdk.Message) string {
	var out []string
	for _, m := range messages {
		for _, p := range m.Parts {
			text := p.Type
			if p.Type == "data-skill_loaded" {
				text += string(p.Data)
			}
			if p.Type != "step-start" {
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, " ")
}

// A skill that is loaded is shown in a chat, while it runs and after a reload, whoever chose
// it; what the model reads of it is not.
func TestChatSkills(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{skilled()}, nil)
	for _, c := range []struct{ id, body, want, stream string }{
		{
			"c-1", `{"id":"c-1","messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"load all"}]}]}`,
			`text dynamic-tool data-skill_loaded{"name":"all"} text`, `{"type":"data-skill_loaded","id":"event-`,
		},
		{
			"c-2", `{"id":"c-2","skills":["all","none"],"messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"Hi!"}]}]}`,
			`text data-skill_loaded{"name":"all"} text`, `{"type":"data-skill_loaded","id":"event-`,
		},
	} {
		answer := s.request(http.MethodPost, "/chat", c.body)
		raw, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // it was read
		live := string(raw)
		if !strings.Contains(live, c.stream) || !strings.Contains(live, `"data":{"name":"all"}`) {
			t.Errorf("%s", live)
		}
		history := call[aisdk.Chat](s, http.StatusOK, http.MethodGet, "/chat/"+c.id+"/messages", nil)
		if got := parts(history.Messages); got != c.want {
			t.Errorf("%s: %s", c.id, got)
		}
	}
}

func TestChosenSkills(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{skilled()}, nil)
	start := func(skills string) string {
		return `{"agentType":"skilled","sessionId":"s-1","message":[{"parts":[{"kind":"text","text":"Hi!"}],"skills":` + skills + `}]}`
	}
	for _, bad := range []string{`"all"`, `["a/b"]`, `["A"]`, `[1]`, `["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"]`} {
		if e := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, "/start", start(bad)); !strings.Contains(e.Field, "skills") {
			t.Errorf("%s: %+v", bad, e)
		}
	}
	s.start(wire.Start{
		AgentType: "skilled", SessionID: "s-1",
		Message: wire.Messages{{Parts: []wire.UserPart{{Kind: session.PartText, Text: "Hi!"}}, Skills: []string{"north-alice"}}},
	})
	status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId=s-1", nil)
	if !strings.Contains(status.Text, "Do it for alice.") {
		t.Errorf("%q", status.Text)
	}
}
