package skills_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }

func one(name, body string, files ...skill.File) skill.Skill {
	return skill.Skill{Metadata: skill.Metadata{Name: name, Description: "About " + name + "."}, Body: body, Files: files}
}

// env is what a call sees of a run.
type env struct {
	view   []session.Message
	events []string
}

func (e *env) Draft() *userstate.Draft                { return nil }
func (e *env) Emit(name string, data json.RawMessage) { e.EmitOwn("app."+name, data) }

func (e *env) EmitOwn(name string, data json.RawMessage) {
	e.events = append(e.events, name+" "+string(data))
}

func (e *env) RecordUsage(string, float64, json.RawMessage)    {}
func (e *env) View() []session.Message                         { return e.view }
func (e *env) PutBlob(context.Context, []byte) (string, error) { return "", session.ErrNotSupported }

func (e *env) Blob(context.Context, string) ([]byte, error) { return nil, session.ErrNotSupported }

func turnOf(view ...session.Message) *helix.Turn {
	turn := &helix.Turn{Scope: helix.Scope{Tenant: "t", UserID: "u", Agent: "a"}, View: view}
	access.BindScope(&turn.Scope, &env{view: view})
	return turn
}

func attach(t *testing.T, x *skills.Extension) *helix.Attachment {
	t.Helper()
	a, err := x.Attach(t.Context(), turnOf())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// call calls a tool of the extension.
func call(t *testing.T, x *skills.Extension, e *env, tool, input string) (string, error) {
	t.Helper()
	for _, offered := range attach(t, x).Tools {
		if offered.Name != tool {
			continue
		}
		c := &helix.Call{ID: "c", Tool: tool, Input: json.RawMessage(input)}
		access.BindScope(&c.Scope, e)
		c.Tenant, c.UserID, c.Agent = "t", "u", "a"
		schema, err := offered.Execute.InputSchema()
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.ValidateInput(c.Input); err != nil {
			return "", err
		}
		out, err := offered.Execute.Call(t.Context(), c, c.Input)
		if err != nil {
			return "", err
		}
		var text string
		if err := json.Unmarshal(out, &text); err != nil {
			t.Fatal(err)
		}
		return text, nil
	}
	t.Fatalf("there is no tool %s", tool)
	return "", nil
}

// result is the message with the result of a call.
func result(id, tool, text string) session.Message {
	out, _ := session.Encode(text)
	m := session.ToolResult(session.Part{CallID: id, Tool: tool}, out)
	m.ID = id
	return m
}

func load(t *testing.T, x *skills.Extension, name string, view ...session.Message) string {
	t.Helper()
	text, err := call(t, x, &env{view: view}, skills.LoadTool, `{"name":"`+name+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestNoSkills(t *testing.T) {
	t.Parallel()
	a := attach(t, skills.New(skills.Config{}))
	if a.Instructions != "" || len(a.Tools) != 0 {
		t.Errorf("%+v", a)
	}
	x := skills.New(skills.Config{})
	if tool, ok := x.FindTool(t.Context(), skills.LoadTool); !ok || !tool.ReadOnly {
		t.Error("load_skill is not found outside of a turn")
	}
	if _, ok := x.FindTool(t.Context(), "other"); ok {
		t.Error("another tool is found")
	}
	if n := len(x.ListTools(t.Context())); n != 2 {
		t.Errorf("%d tools are listed", n)
	}
}

func TestEqualBytes(t *testing.T) {
	t.Parallel()
	var list, back []skill.Skill
	for i := range 20 {
		list = append(list, one(fmt.Sprintf("s-%02d", i), "Body."))
		back = append([]skill.Skill{list[i]}, back...)
	}
	shape := func(list []skill.Skill, preload ...string) string {
		a := attach(t, skills.New(skills.Config{Provider: skill.Static(list...), Preload: preload}))
		out := a.Instructions
		for _, tool := range a.Tools {
			schema, err := tool.Execute.InputSchema()
			if err != nil {
				t.Fatal(err)
			}
			out += tool.Name + tool.Description + string(schema.JSON())
		}
		return out
	}
	if a, b := shape(list, "s-03", "s-01"), shape(back, "s-01", "s-03", "s-01"); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestOffersAreBounded(t *testing.T) {
	t.Parallel()
	var list []skill.Skill
	for i := range skills.MaxOffered + 10 {
		s := one(fmt.Sprintf("s-%04d", i), strings.Repeat("x", 50<<10))
		s.Description = strings.Repeat("d", 1000)
		list = append(list, s)
	}
	x := skills.New(skills.Config{Provider: skill.Static(list...), Preload: []string{"s-0000", "s-0001", "s-0002", "s-0003"}})
	a := attach(t, x)
	if n := len(a.Instructions); n > 250<<10 {
		t.Errorf("the instructions have %d bytes", n)
	}
	told := strings.Join(a.Warnings, "\n")
	for _, want := range []string{"There are 510 skills; the first 500", "s-0002 is not preloaded", "descriptions of"} {
		if !strings.Contains(told, want) {
			t.Errorf("no %q in\n%s", want, told)
		}
	}
	if strings.Contains(a.Instructions, `name="s-0002" loaded`) || !strings.Contains(a.Instructions, `name="s-0001" loaded`) {
		t.Error("the catalogue does not say what is preloaded")
	}
	if listed, err := x.Skills(t.Context(), skill.Scope{}); err != nil || len(listed) != skills.MaxOffered {
		t.Errorf("%d, %v", len(listed), err)
	}
}

// Users are told what is wrong with the agent's skills, and not where on the server that is.
func TestWarningsDoNotShowPaths(t *testing.T) {
	t.Parallel()
	a := attach(t, skills.New(skills.Config{Provider: troubled{skill.Static(one("a", ""))}}))
	if len(a.Warnings) != 16 || a.Warnings[0] != "pdf/SKILL.md:3:1: description is missing" || a.Warnings[15] != "There are 5 further warnings." {
		t.Errorf("%q", a.Warnings)
	}
	dir, first := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		first + "/pdf/SKILL.md": "---\nname: pdf\ndescription: Reads.\n---\n", dir + "/pdf/SKILL.md": "---\nname: pdf\ndescription: Hidden.\n---\n",
		dir + "/again/SKILL.md": "---\nname: pdf\ndescription: Hidden, too.\n---\n", dir + "/bad/SKILL.md": "---\nname: bad\n---\n", dir + "/csv/SKILL.md": "text",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	p := files.Dir(first, dir)
	x := skills.New(skills.Config{Provider: p, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	want := []string{
		"again/SKILL.md:2:7: the name pdf is not that of the directory, again", "again/SKILL.md: the skill pdf is hidden by another one of its name",
		"bad/SKILL.md:1:1: description is missing; it says what the skill does and when to use it", "csv/SKILL.md:1:1: does not begin with a line --- and frontmatter",
		"link: is a link that cannot be followed within the directory of skills: it leads out of the directory",
		"pdf/SKILL.md: the skill pdf is hidden by another one of its name",
	}
	for range 2 {
		told := attach(t, x).Warnings
		slices.Sort(told)
		slices.Sort(want)
		if !slices.Equal(told, want) {
			t.Errorf("the users are told\n%s", strings.Join(told, "\n"))
		}
	}
	if n := strings.Count(log.String(), "is hidden by another one of its name (in "+filepath.ToSlash(first)+"/pdf)"); n != 2 {
		t.Errorf("the log names the other skill %d times:\n%s", n, log.String())
	}
	only := skills.New(skills.Config{Provider: skill.Only(p, "pdf", "none")})
	for _, text := range attach(t, only).Warnings {
		if !strings.Contains(text, "pdf") && text != "skill none: does not exist" {
			t.Errorf("an agent without the skill is told %q", text)
		}
	}

	// What is away is not shown to the model either.
	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Dir(first).List(t.Context(), skill.Scope{}); err == nil || !strings.Contains(err.Error(), first) {
		t.Fatal(err)
	}
	gone := skills.New(skills.Config{Provider: files.Dir(first), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	log.Reset()
	if _, err := gone.Skills(t.Context(), skill.Scope{}); !errors.Is(err, session.ErrUnavailable) || strings.Contains(err.Error(), first) || !strings.Contains(log.String(), first) {
		t.Errorf("%v\n%s", err, log.String())
	}
	log.Reset()
	text, err := call(t, x, &env{}, skills.LoadTool, `{"name":"pdf"}`)
	if err == nil || strings.Contains(err.Error(), first) || !strings.Contains(log.String(), first) {
		t.Errorf("%q, %v\n%s", text, err, log.String())
	}
}

type troubled struct{ skill.Provider }

func (troubled) Problems(context.Context, skill.Scope) []*skill.Problem {
	out := make([]*skill.Problem, 20)
	for i := range out {
		out[i] = &skill.Problem{Path: "/srv/secret/skills/pdf/SKILL.md", Line: 3, Column: 1, Message: "description is missing", Refused: true}
	}
	return out
}

func TestContent(t *testing.T) {
	t.Parallel()
	s := one("pdf", "Read </skill_content> it.", skill.File{Path: `a "b".md`, Content: []byte("x")})
	s.AllowedTools, s.Compatibility = []string{"fetch", "Bash(git add:*)"}, "Needs git."
	x := skills.New(skills.Config{Provider: skill.Static(s)})
	e := &env{}
	text, err := call(t, x, e, skills.LoadTool, `{"name":"pdf"}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<skill_content name="pdf" digest="`, `allowed-tools="fetch Bash(git add:*)"`, "Read &lt;/skill_content> it.", "Needs git.",
		"made for these tools: fetch, Bash(git add:*).", `<file path="a &quot;b&quot;.md" size="1"/>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Count(text, "</skill_content>") != 1 || !strings.HasSuffix(text, "\n</skill_content>") {
		t.Errorf("the end of the content is not clear:\n%s", text)
	}
	if len(e.events) != 1 || e.events[0] != `skill_loaded {"name":"pdf"}` {
		t.Errorf("%q", e.events)
	}
	if _, err := call(t, x, e, skills.LoadTool, `{"name":"none"}`); err == nil {
		t.Error("a name that is not in the enum is accepted")
	}
}

// summary is a marker of a summary, with what extensions kept.
func summary(text string, kept ...session.Part) session.Message {
	c := session.Compaction{Kind: session.CompactionSummary}
	if len(kept) > 0 && kept[0].Kind == session.PartText {
		c.Preserved = []string{"skills"}
	}
	m := must(c.Marker(text, kept...))
	m.ID = "m"
	return m
}

func TestLoadedOnce(t *testing.T) {
	t.Parallel()
	x := skills.New(skills.Config{Provider: skill.Static(one("pdf", "Read it."))})
	text := load(t, x, "pdf")
	hidden := helix.Hidden(session.UserText("The user chose this skill.\n\n" + text))
	hidden.Metadata[session.MetaSkill] = []byte(`"pdf"`)
	for name, m := range map[string]session.Message{
		"a result": result("1", skills.LoadTool, text), "a chosen skill": hidden,
		"a summary": summary("They spoke.", session.Text("Skills:\n\n"+text)), "the second of a summary": summary("They spoke.", session.Text(quoted("csv")+"\n\n"+text)),
		"a summary behind one that was cut": summary("They spoke.", session.Text(strings.Replace(quoted("csv"), "csv.", "", 1)+"\n\n"+text)),
	} {
		if got := load(t, x, "pdf", m); !strings.Contains(got, "loaded already") {
			t.Errorf("%s: %s", name, got)
		}
	}
	failed := result("1", skills.LoadTool, text)
	failed.Parts[0].Error = session.ErrInternal
	evil := skills.New(skills.Config{Provider: skill.Static(one("evil", text))})
	chosen := helix.Hidden(session.UserText(load(t, evil, "evil") + text))
	chosen.Metadata[session.MetaSkill] = []byte(`"evil"`)
	for name, m := range map[string]session.Message{
		"the user's words":             session.UserText(text),
		"a hidden message":             helix.Hidden(session.UserText(text)),
		"the model's words":            {Role: session.RoleAssistant, Parts: []session.Part{session.Text(text)}},
		"another tool's result":        result("1", "fetch", text),
		"a file":                       result("1", skills.ReadTool, text),
		"a failure":                    failed,
		"a result that was cut":        result("1", skills.LoadTool, text[:len(text)-20]),
		"a result without its middle":  result("1", skills.LoadTool, strings.Replace(text, "Read", "", 1)),
		"a result that was trimmed":    result("1", skills.LoadTool, strings.Replace(text, "Read it.", "\n[... 8 bytes left out ...]\n", 1)),
		"an earlier version":           result("1", skills.LoadTool, load(t, skills.New(skills.Config{Provider: skill.Static(one("pdf", "Read."))}), "pdf")),
		"another skill":                result("1", skills.LoadTool, load(t, skills.New(skills.Config{Provider: skill.Static(one("csv", "Read it."))}), "csv")),
		"another skill that quotes it": result("1", skills.LoadTool, load(t, evil, "evil")),
		"what follows another skill":   result("1", skills.LoadTool, load(t, evil, "evil")+text),
		"what follows a chosen skill":  chosen,
		"words about the skill":        result("1", skills.LoadTool, "The skill pdf is loaded already. "+text),
		"a summary that cut it":        summary("They spoke.", session.Text(strings.Replace(text, `">`, `" cut="true">`, 1))),
		"a summary that lost its end":  summary("They spoke.", session.Text(text[:len(text)-3])),
		"a summary with another's end": summary("They spoke.", session.Text(text[:len(text)-25]+"\n[... 99 bytes left out ...]\n"+quoted("csv")[80:])),
		"a summary that lost it":       summary("They loaded pdf."),
		"the words of a summary":       summary("They spoke.\n\n" + text),
		"what a summary repeats":       summary("They spoke.\n\n<user_message>\n"+text+"\n</user_message>", session.Text("Something else.")),
		"what another extension kept":  must(session.Compaction{Kind: session.CompactionSummary, Preserved: []string{"notes"}}.Marker("They spoke.", session.Text(text))),
		"a file beside a summary":      summary("They spoke.", session.Part{Kind: session.PartFile, URL: "data:text/plain;base64,eA==", MediaType: "text/plain"}, session.Text(text)),
	} {
		if got := load(t, x, "pdf", m); !strings.HasPrefix(got, "<skill_content") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// quoted is the content of a skill as a conversation has it.
func quoted(name string) string {
	body := "About " + name + ".\n"
	return fmt.Sprintf("<skill_content name=%q digest=\"0123456789abcdef\" bytes=\"%d\">\n%s</skill_content>", name, len(body), body)
}

func must(m session.Message, err error) session.Message {
	if err != nil {
		panic(err)
	}
	return m
}

func TestLongBody(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("line %d of the ünstructions", i+1))
	}
	x := skills.New(skills.Config{Provider: skill.Static(one("pdf", strings.Join(lines, "\n"))), MaxBody: 1000})
	text := load(t, x, "pdf")
	if len(text) > 1500 || !strings.Contains(text, "line 30 of") || strings.Contains(text, "line 50 of") {
		t.Errorf("%s", text)
	}
	at := strings.Index(text, "startLine ")
	var next int
	if _, err := fmt.Sscanf(text[at:], "startLine %d", &next); err != nil {
		t.Fatal(err)
	}
	rest, err := call(t, x, &env{}, skills.ReadTool, fmt.Sprintf(`{"name":"pdf","path":"SKILL.md","startLine":%d}`, next))
	if err != nil || !strings.Contains(rest, fmt.Sprintf("line %d of", next)) || !strings.Contains(rest, "line 100 of") {
		t.Errorf("%s, %v", rest, err)
	}
	if strings.Contains(text, fmt.Sprintf("line %d of", next+1)) {
		t.Errorf("line %d was in the first part", next+1)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	x := skills.New(skills.Config{MaxFile: 40, Provider: skill.Static(one("pdf", "Read it.",
		skill.File{Path: "a.md", Content: []byte("one\ntwo\nthree\n")},
		skill.File{Path: "empty.md"},
		skill.File{Path: "last.md", Content: []byte("one\ntwo")},
		skill.File{Path: "long.md", Content: []byte(strings.Repeat("0123456789\n", 10))},
		skill.File{Path: "wide.md", Content: []byte("first\n" + strings.Repeat("ü", 100) + "\nlast\n")},
		skill.File{Path: "image.png", Content: []byte("\x89PNG\x00\x01")},
		skill.File{Path: "latin.txt", Content: []byte("caf\xe9\n")},
	))})
	for input, want := range map[string]string{
		`"a.md"`:                              "lines=\"1-3\" of=\"3\">\none\ntwo\nthree\n</skill_file>",
		`"a.md","startLine":2`:                "lines=\"2-3\" of=\"3\">\ntwo\nthree\n</skill_file>",
		`"a.md","endLine":1`:                  "lines=\"1-1\" of=\"3\">\none\n</skill_file>",
		`"a.md","startLine":2,"endLine":2`:    "lines=\"2-2\" of=\"3\">\ntwo\n</skill_file>",
		`"a.md","startLine":3,"endLine":99`:   "lines=\"3-3\" of=\"3\">\nthree\n</skill_file>",
		`"last.md","startLine":2`:             "lines=\"2-2\" of=\"2\">\ntwo\n</skill_file>",
		`"empty.md"`:                          "of=\"0\">\n",
		`"SKILL.md"`:                          ">\nRead it.\n</skill_file>",
		`"long.md"`:                           "lines=\"1-3\" of=\"10\">\n0123456789\n0123456789\n0123456789\n</skill_file>\n[One call returns at most 40 bytes. To read on, call read_skill_file with startLine 4.]",
		`"long.md","startLine":9`:             "lines=\"9-10\" of=\"10\">",
		`"wide.md","startLine":2,"endLine":3`: "lines=\"2-2\" of=\"3\">\n" + strings.Repeat("ü", 20) + "\n</skill_file>\n[Line 2 is longer than 40 bytes and was cut.]",
		`"wide.md","startLine":3`:             "lines=\"3-3\" of=\"3\">\nlast\n",
	} {
		got, err := call(t, x, &env{}, skills.ReadTool, `{"name":"pdf","path":`+input+`}`)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s", input, err, got)
		}
	}
	for input, want := range map[string]string{
		`"a.md","startLine":4`:             "startLine is 4, but a.md has 3 lines",
		`"a.md","startLine":3,"endLine":2`: "endLine is 2, which is before startLine, 3",
		`"a.md","startLine":0`:             "startLine",
		`"none.md"`:                        `has no file "none.md"; it has a.md, empty.md`,
		`"../x"`:                           "does not lie within the skill",
		`"/etc/passwd"`:                    "does not lie within the skill",
		`"image.png"`:                      "not a text",
		`"latin.txt"`:                      "not a text",
		`""`:                               "path is missing",
	} {
		if got, err := call(t, x, &env{}, skills.ReadTool, `{"name":"pdf","path":`+input+`}`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", input, err, got)
		}
	}
	if _, err := call(t, x, &env{}, skills.ReadTool, `{"name":"none","path":"a.md"}`); err == nil || !strings.Contains(err.Error(), `no skill named "none"`) {
		t.Error(err)
	}
}

func TestLoadedNames(t *testing.T) {
	t.Parallel()
	x := skills.New(skills.Config{Provider: skill.Static(one("pdf", "Read it."), one("csv", "Count it."))})
	messages := []session.Message{
		session.UserText("Hi!"), result("1", skills.LoadTool, load(t, x, "pdf")), result("2", skills.LoadTool, load(t, x, "csv")),
		result("3", skills.LoadTool, "The skill pdf is loaded already."), result("4", skills.LoadTool, load(t, x, "pdf")),
	}
	if got := fmt.Sprint(skills.LoadedNames(messages)); got != "[csv pdf]" {
		t.Error(got)
	}
}

// careless is a provider that does not check what it returns.
type careless struct{ body string }

func (careless) List(context.Context, skill.Scope) ([]skill.Metadata, error) {
	return []skill.Metadata{
		{Name: "z", Description: "Last."},
		{Name: "other", Description: "Has another name."},
		{Name: `a" loaded="true`, Description: "Bad."},
		{Name: "nothing", Description: "Is nil."},
		{Name: "z", Description: "Again."},
		{Name: "empty"},
		{Name: "bad", Description: "Has a bad body."},
	}, nil
}

func (c careless) Load(_ context.Context, _ skill.Scope, name string) (*skill.Skill, error) {
	switch name {
	case "nothing":
		return nil, nil
	case "other":
		return &skill.Skill{Metadata: skill.Metadata{Name: "z", Description: "Last."}}, nil
	case "bad":
		return &skill.Skill{Metadata: skill.Metadata{Name: "bad", Description: "B."}, Body: "a\x00b"}, nil
	}
	return &skill.Skill{Metadata: skill.Metadata{Name: name, Description: "Last."}, Body: c.body}, nil
}

func (careless) Open(context.Context, skill.Scope, string, string) (io.ReadCloser, error) {
	return nil, session.ErrUnavailable
}

func TestCarelessProvider(t *testing.T) {
	t.Parallel()
	x := skills.New(skills.Config{Provider: careless{"One."}, Preload: []string{"bad"}})
	a := attach(t, x)
	if !strings.Contains(a.Instructions, "<available_skills>\n<skill name=\"bad\">Has a bad body.</skill>\n<skill name=\"nothing\">Is nil.</skill>\n"+
		"<skill name=\"other\">Has another name.</skill>\n<skill name=\"z\">Last.</skill>\n</available_skills>") {
		t.Errorf("%s", a.Instructions)
	}
	told := strings.Join(a.Warnings, "\n")
	for _, want := range []string{`name "a\" loaded`, "z is listed twice", "description is missing", "bad could not be preloaded"} {
		if !strings.Contains(told, want) {
			t.Errorf("no %q in\n%s", want, told)
		}
	}
	for _, name := range []string{"nothing", "other", "bad"} {
		if text, err := call(t, x, &env{}, skills.LoadTool, `{"name":"`+name+`"}`); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
	// Without a digest the body tells versions apart.
	first := result("1", skills.LoadTool, load(t, x, "z"))
	if got := load(t, x, "z", first); !strings.Contains(got, "loaded already") {
		t.Errorf("%s", got)
	}
	if got := load(t, skills.New(skills.Config{Provider: careless{"Two."}}), "z", first); !strings.Contains(got, "Two.") {
		t.Errorf("%s", got)
	}
	if _, err := call(t, x, &env{}, skills.ReadTool, `{"name":"z","path":"a.md"}`); err == nil {
		t.Error("a file that cannot be read is read")
	}
}
