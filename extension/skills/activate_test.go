package skills_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// counting is a provider that counts, and can be away.
type counting struct {
	skill.Provider
	loads   atomic.Int64
	away    bool
	noLoads bool
}

func (c *counting) List(ctx context.Context, scope skill.Scope) ([]skill.Metadata, error) {
	if c.away {
		return nil, session.ErrUnavailable
	}
	return c.Provider.List(ctx, scope)
}

func (c *counting) Load(ctx context.Context, scope skill.Scope, name string) (*skill.Skill, error) {
	c.loads.Add(1)
	if c.noLoads {
		return nil, session.ErrUnavailable
	}
	return c.Provider.Load(ctx, scope, name)
}

// chosen returns what the model is told about a skill that the user chose.
func chosen(t *testing.T, x *skills.Extension, name string) string {
	t.Helper()
	turn := turnOf()
	turn.Input = []session.Message{skills.Activate(session.UserText("Hi!"), name)}
	out, err := x.Prepare(t.Context(), turn)
	if err != nil || len(out) != 1 {
		t.Fatal(out, err)
	}
	return out[0].Content()
}

// Only a skill that is known not to exist is said not to exist, and nobody looks for it.
func TestChosenNames(t *testing.T) {
	t.Parallel()
	const gone, later = `"none", which does not exist`, "which cannot be loaded at the moment"
	p := &counting{Provider: skill.Static(one("pdf", "Read it.")), away: true}
	x := skills.New(skills.Config{Provider: p})
	for _, name := range []string{"pdf", "none"} {
		if got := chosen(t, x, name); !strings.Contains(got, later) {
			t.Errorf("a provider that was never there: %s", got)
		}
	}
	p.away = false
	if got := chosen(t, x, "none"); !strings.Contains(got, gone) {
		t.Error(got)
	}
	if _, err := call(t, x, &env{}, skills.ReadTool, `{"name":"none","path":"SKILL.md"}`); err == nil || !strings.Contains(err.Error(), `no skill named "none"`) {
		t.Error(err)
	}
	if n := p.loads.Load(); n != 0 {
		t.Errorf("skills that are not listed were loaded %d times", n)
	}
	if got := chosen(t, x, "pdf"); !strings.Contains(got, "Read it.") {
		t.Error(got)
	}
	p.away = true
	if got := chosen(t, x, "none"); !strings.Contains(got, later) {
		t.Errorf("a provider that is away: %s", got)
	}
	if got := chosen(t, x, "pdf"); !strings.Contains(got, "Read it.") {
		t.Errorf("a provider that can only load: %s", got)
	}
	p.noLoads = true
	if got := chosen(t, x, "pdf"); !strings.Contains(got, later) {
		t.Error(got)
	}
}

// unsigned is a provider without digests, with other instructions for each tenant.
type unsigned struct {
	version string
	away    bool
}

func (u *unsigned) List(context.Context, skill.Scope) ([]skill.Metadata, error) {
	if u.away {
		return nil, session.ErrUnavailable
	}
	return []skill.Metadata{{Name: "house-rules", Description: "The rules of the house."}}, nil
}

func (u *unsigned) Load(_ context.Context, scope skill.Scope, name string) (*skill.Skill, error) {
	return &skill.Skill{Metadata: skill.Metadata{Name: name, Description: "The rules of the house."}, Body: "Rules of " + scope.Tenant + u.version}, nil
}

func (*unsigned) Open(context.Context, skill.Scope, string, string) (io.ReadCloser, error) {
	return nil, session.ErrNotFound
}

// Without digests nobody gets the instructions of another tenant, or those of yesterday.
func TestTenantsWithoutDigests(t *testing.T) {
	t.Parallel()
	p := &unsigned{}
	x := skills.New(skills.Config{Provider: p, Preload: []string{"house-rules"}})
	of := func(tenant string) string {
		turn := turnOf()
		turn.Tenant = tenant
		a, err := x.Attach(t.Context(), turn)
		if err != nil {
			t.Fatal(err)
		}
		return a.Instructions
	}
	if got := of("north"); !strings.Contains(got, "Rules of north") {
		t.Error(got)
	}
	if got := of("south"); !strings.Contains(got, "Rules of south") || strings.Contains(got, "north") {
		t.Errorf("south is told\n%s", got)
	}
	p.version = ", second edition"
	if got := of("north"); !strings.Contains(got, "Rules of north, second edition") {
		t.Errorf("north is still told\n%s", got)
	}
	of("south")
	p.away = true
	if got := of("north"); !strings.Contains(got, "Rules of north, second edition") {
		t.Errorf("when the provider is away, north is told\n%s", got)
	}
}

// stuck is a provider that stops answering.
type stuck struct {
	skill.Provider
	stuck bool
}

func (p *stuck) List(ctx context.Context, scope skill.Scope) ([]skill.Metadata, error) {
	if p.stuck {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.Provider.List(ctx, scope)
}

// What was known before is returned before the framework's patience ends.
func TestProviderIsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &stuck{Provider: skill.Static(with(one("pdf", "Read it."), "read"))}
		x := skills.New(skills.Config{Provider: p, Preload: []string{"pdf"}, AllowedTools: skills.Restrict})
		attach(t, x)
		p.stuck = true
		began := time.Now()
		took := func() time.Duration { defer func() { began = time.Now() }(); return time.Since(began) }
		a, err := x.Attach(t.Context(), turnOf())
		if n := took(); n >= 10*time.Second || err != nil || !strings.Contains(a.Instructions, "Read it.") || len(a.Warnings) != 1 {
			t.Errorf("after %s: %+v, %v", n, a, err)
		}
		if got := chosen(t, x, "none"); took() >= 2*time.Second || !strings.Contains(got, "at the moment") {
			t.Errorf("%s", got)
		}
		c := &helix.Call{ID: "c", Tool: "other", Input: json.RawMessage("{}")}
		access.BindScope(&c.Scope, &env{})
		c.Tenant, c.UserID, c.Agent = "t", "u", "a"
		if err := x.Check(t.Context(), c); took() >= 5*time.Second || err == nil || !strings.Contains(err.Error(), "allows only these tools: read") {
			t.Errorf("%v", err)
		}
	})
}

// edited is a provider whose skills were edited since they were listed.
type edited struct {
	skill.Provider
	now  skill.Provider
	fail bool
}

func (p *edited) Load(ctx context.Context, scope skill.Scope, name string) (*skill.Skill, error) {
	if p.fail {
		return nil, session.ErrUnavailable
	}
	return p.now.Load(ctx, scope, name)
}

// A skill that is edited between the list and the load is not kept for those who get the
// list again.
func TestEditBehindTheList(t *testing.T) {
	t.Parallel()
	first, second := skill.Static(with(one("pdf", "First."), "read")), skill.Static(with(one("pdf", "Second."), "read"))
	p := &edited{Provider: first, now: second}
	x := skills.New(skills.Config{Provider: p, Preload: []string{"pdf"}, AllowedTools: skills.Restrict})
	if got := attach(t, x).Instructions; !strings.Contains(got, "Second.") {
		t.Errorf("%s", got)
	}
	p.now = first
	if got := attach(t, x).Instructions; !strings.Contains(got, "First.") {
		t.Errorf("the list of the first edition comes with\n%s", got)
	}
	// The tools of a preloaded skill are known from the list, also if it cannot be loaded.
	p.fail = true
	y := skills.New(skills.Config{Provider: p, Preload: []string{"pdf"}, AllowedTools: skills.Restrict})
	if err := check(t, y, "other", "{}"); err == nil {
		t.Error("a preloaded skill that cannot be loaded does not restrict")
	}
	if err := check(t, y, "read", "{}"); err != nil {
		t.Error(err)
	}
}

// credulous is a provider that uses names as it gets them.
type credulous struct {
	skill.Provider
	asked []string
}

func (p *credulous) Load(_ context.Context, _ skill.Scope, name string) (*skill.Skill, error) {
	p.asked = append(p.asked, name)
	return nil, session.ErrUnavailable
}

func (p *credulous) Open(_ context.Context, _ skill.Scope, name, _ string) (io.ReadCloser, error) {
	p.asked = append(p.asked, name)
	return nil, session.ErrUnavailable
}

func TestProvidersGetOnlyNames(t *testing.T) {
	t.Parallel()
	p := &credulous{Provider: skill.Static(one("pdf", "Read it."))}
	x := skills.New(skills.Config{Provider: p})
	for _, known := range []bool{false, true} { // as it is found outside of a turn, and as it is offered
		for _, name := range []string{"../pdf", "a/b", "", "none"} {
			tools := attach(t, x).Tools
			if !known {
				tools = x.ListTools(t.Context())
			}
			for _, tool := range tools {
				for _, path := range []string{"SKILL.md", "a.md"} {
					raw, _ := json.Marshal(map[string]string{"name": name, "path": path})
					c := &helix.Call{ID: "c", Tool: tool.Name, Input: raw}
					access.BindScope(&c.Scope, &env{})
					if _, err := tool.Execute.Call(t.Context(), c, raw); err == nil {
						t.Errorf("%s %s", tool.Name, raw)
					}
				}
			}
		}
	}
	for _, name := range p.asked {
		if name != "none" {
			t.Errorf("the provider was asked for %q", name)
		}
	}
}
