package skill_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "pdf", "pdf-processing", "a1-b2-c3", "0", strings.Repeat("a", 64)} {
		if err := skill.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                      "missing",
		"Pdf":                   `'P'`,
		"a b":                   `' '`,
		"a_b":                   `'_'`,
		"a/b":                   `'/'`,
		"../a":                  `'.'`,
		"ä":                     `'ä'`,
		"a\x00":                 `'\x00'`,
		"-a":                    "begins or ends",
		"a-":                    "begins or ends",
		"a--b":                  "two hyphens",
		strings.Repeat("a", 65): "65 characters",
	} {
		if err := skill.CheckName(name); !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"a.md", "scripts/run.sh", ".hidden", "a b/ü.md"} {
		if err := skill.CheckPath(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{
		"", ".", "..", "/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "a/", `a\b`, "a\x00b", "a\nb", "a\xffb", strings.Repeat("a", skill.MaxPath+1),
	} {
		if err := skill.CheckPath(path); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	files := []skill.FileSum{
		skill.Sum("SKILL.md", false, []byte("body")), skill.Sum("a/run.sh", true, []byte("#!")), skill.Sum("a.md", false, nil),
	}
	const want = "sha256:43f9222e6385afe3d6ee363c56a0d27aa4db3d694a86acb8aacad1e2a6c6cc29" // what sha256sum says of the sorted lines
	if got := skill.Digest(files); got != want {
		t.Fatalf("the digest is %q", got)
	}
	slices.Reverse(files)
	if got := skill.Digest(files); got != want {
		t.Errorf("the order matters: %s, %s", got, want)
	}
	for name, change := range map[string]func([]skill.FileSum){
		"path":    func(f []skill.FileSum) { f[0].Path = "b.md" },
		"mode":    func(f []skill.FileSum) { f[0].Executable = true },
		"content": func(f []skill.FileSum) { f[0] = skill.Sum(f[0].Path, false, []byte("x")) },
	} {
		other := slices.Clone(files)
		change(other)
		if skill.Digest(other) == want {
			t.Errorf("a change of the %s does not change the digest", name)
		}
	}
}

func one(name, description, body string, files ...skill.File) skill.Skill {
	return skill.Skill{Metadata: skill.Metadata{Name: name, Description: description}, Body: body, Files: files}
}

func names(list []skill.Metadata) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

func listed(t *testing.T, p skill.Provider) []skill.Metadata {
	t.Helper()
	list, err := p.List(t.Context(), skill.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func problems(t *testing.T, p skill.Provider) string {
	t.Helper()
	var out []string
	for _, one := range skill.Problems(t.Context(), p, skill.Scope{}) {
		out = append(out, one.Error())
	}
	return strings.Join(out, "\n")
}

func content(t *testing.T, p skill.Provider, name, path string) (string, error) {
	t.Helper()
	f, err := p.Open(t.Context(), skill.Scope{}, name, path)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(f)
	return string(data), errors.Join(err, f.Close())
}

func TestStatic(t *testing.T) {
	t.Parallel()
	p := skill.Static(
		one("pdf", "Reads PDFs.", "Read.", skill.File{Path: "b.md", Content: []byte("bb")}, skill.File{Path: "a.md", Content: []byte("a")}),
		one("csv", "Reads CSV.", "Count."),
		one("pdf", "Another.", "No."),
		one("a/b", "A slash.", ""),
		one("nothing", " ", ""),
		one("huge", "Too much.", strings.Repeat("x", 1<<20)),
		one("zero", "A zero byte.", "a\x00b"),
		one("out", "A file elsewhere.", "", skill.File{Path: "../x"}),
	)
	list := listed(t, p)
	if names(list) != "csv pdf" || list[0].Digest == "" || list[0].Digest == list[1].Digest {
		t.Errorf("%+v", list)
	}
	for _, want := range []string{
		"skill pdf: is hidden by", `"a/b" contains '/'`, "skill nothing: description is missing", "skill huge: body has 1048576 bytes",
		"skill zero: body", "zero byte", "skill out: path", "does not lie within the skill",
	} {
		if got := problems(t, p); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s, err := p.Load(t.Context(), skill.Scope{}, "pdf")
	if err != nil || s.Body != "Read." || len(s.Files) != 2 || s.Files[0].Path != "a.md" || s.Files[1].Size != 2 || s.Files[0].Content != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if got, err := content(t, p, "pdf", "b.md"); got != "bb" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, missing := range [][2]string{{"pdf", "c.md"}, {"xls", "a.md"}} {
		if _, err := content(t, p, missing[0], missing[1]); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("%v: %v", missing, err)
		}
	}
	if _, err := p.Load(t.Context(), skill.Scope{}, "a/b"); !errors.Is(err, session.ErrNotFound) {
		t.Error(err)
	}
	changed := skill.Static(one("pdf", "Reads PDFs.", "Read!"), one("csv", "Reads CSV.", "Count."))
	if again := listed(t, changed); again[0].Digest != list[0].Digest || again[1].Digest == list[1].Digest {
		t.Error("the digest does not tell what has changed")
	}
}

// scoped is a provider with other skills for each user, which can be away.
type scoped struct {
	skill.Provider
	away, gone bool
	loads      int
}

func (s *scoped) Load(ctx context.Context, scope skill.Scope, name string) (*skill.Skill, error) {
	s.loads++
	if s.gone {
		return nil, session.ErrNotFound
	}
	return s.Provider.Load(ctx, scope, name)
}

func (s *scoped) List(ctx context.Context, scope skill.Scope) ([]skill.Metadata, error) {
	if s.away {
		return nil, session.ErrUnavailable
	}
	return s.Provider.List(ctx, scope)
}

func TestMerge(t *testing.T) {
	t.Parallel()
	first := &scoped{Provider: skill.Static(one("b", "First.", "1", skill.File{Path: "x", Content: []byte("1")}))}
	second := skill.Static(one("b", "Second.", "2", skill.File{Path: "y", Content: []byte("2")}), one("a", "A.", "A"))
	p := skill.Merge(first, second)
	list := listed(t, p)
	if names(list) != "a b" || list[1].Description != "First." {
		t.Errorf("%+v", list)
	}
	if got := problems(t, p); got != "skill b: is hidden by a skill of the same name from an earlier source" {
		t.Errorf("%q", got)
	}
	if s, err := p.Load(t.Context(), skill.Scope{}, "b"); err != nil || s.Body != "1" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := p.Load(t.Context(), skill.Scope{}, "a"); err != nil || s.Body != "A" {
		t.Errorf("%+v, %v", s, err)
	}
	if got, err := content(t, p, "b", "x"); got != "1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := content(t, p, "b", "y"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("a file of the hidden skill: %v", err)
	}
	if _, err := p.Load(t.Context(), skill.Scope{}, "c"); !errors.Is(err, session.ErrNotFound) {
		t.Error(err)
	}
	if got := skill.Problems(t.Context(), p, skill.Scope{}); len(got) != 1 || got[0].Refused {
		t.Errorf("a skill that hides another one is more than a warning: %+v", got)
	}
	first.gone = true
	if s, err := p.Load(t.Context(), skill.Scope{}, "b"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("a hidden skill takes the place of one that is listed: %+v, %v", s, err)
	}
	if first.loads != 2 {
		t.Errorf("the first provider was asked %d times for skills, two of which it lists", first.loads)
	}
	first.away = true
	if list, err := p.List(t.Context(), skill.Scope{}); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("a hidden skill takes the place of one that is away: %v, %v", list, err)
	}
	if _, err := content(t, p, "b", "x"); !errors.Is(err, session.ErrUnavailable) {
		t.Error(err)
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	all := skill.Static(one("a", "A.", "A"), one("b", "B.", "B"), one("c", "C.", "C"), one("bad", "", ""))
	p := skill.Only(all, "c", "a", "bad", "none", "a")
	if got := names(listed(t, p)); got != "a c" {
		t.Error(got)
	}
	if _, err := p.Load(t.Context(), skill.Scope{}, "b"); !errors.Is(err, session.ErrNotFound) {
		t.Error(err)
	}
	if _, err := content(t, p, "b", "SKILL.md"); !errors.Is(err, session.ErrNotFound) {
		t.Error(err)
	}
	want := "skill bad: description is missing; it says what the skill does and when to use it\nskill none: does not exist"
	if got := problems(t, p); got != want {
		t.Errorf("%s", got)
	}
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	if text, _ := skill.Catalogue(nil); text != "" {
		t.Errorf("no skills give %q", text)
	}
	skills := []skill.Metadata{
		{Name: "z", Description: `Uses <tags> & "quotes".` + "\nIn two lines."}, {Name: "a", Description: "First.", Digest: "sha256:00"},
	}
	text, cut := skill.Catalogue(skills, "a")
	want := `<available_skills>
<skill name="a" loaded="true">First.</skill>
<skill name="z">Uses &lt;tags&gt; &amp; &quot;quotes&quot;. In two lines.</skill>
</available_skills>`
	if cut != 0 || !strings.HasPrefix(text, "## Skills\n") || !strings.HasSuffix(text, want) || !strings.Contains(text, "NOT a tool") {
		t.Errorf("%s", text)
	}
	slices.Reverse(skills)
	if again, _ := skill.Catalogue(skills, "a"); again != text {
		t.Error("the order of the skills changes the bytes")
	}
	if skills[0].Name != "a" {
		t.Error("the skills of the caller were sorted")
	}
	var many []skill.Metadata
	for i := range 500 {
		many = append(many, skill.Metadata{Name: "skill-" + strings.Repeat("x", i%7) + string(rune('a'+i%26)), Description: strings.Repeat("d", 1000)})
	}
	text, cut = skill.Catalogue(many)
	if len(text) > skill.MaxCatalogue+64<<10 || cut == 0 || strings.Count(text, "<skill name=") != 500 {
		t.Errorf("%d bytes, %d without a description", len(text), cut)
	}
}

func TestSplitTools(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                               nil,
		"Read":                           {"Read"},
		"Bash(git:*)  Read":              {"Bash(git:*)", "Read"},
		"Bash(git add:*), Read, Bash(x)": {"Bash(git add:*)", "Read", "Bash(x)"},
		"a(b c":                          {"a(b c"},
	} {
		if got := skill.SplitTools(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// troubled is a provider with problems that are not about its skills.
type troubled struct{ skill.Provider }

func (troubled) Problems(context.Context, skill.Scope) []*skill.Problem {
	return []*skill.Problem{{Message: "too many directories"}, {Skill: "b", Message: "is odd"}, {Skill: "a", Message: "is odd, too"}}
}

func TestOnlyTellsOfItsOwn(t *testing.T) {
	t.Parallel()
	p := skill.Only(troubled{skill.Static(one("a", "A.", "A"), one("b", "B.", "B"))}, "a")
	if got := problems(t, p); got != "skill a: is odd, too" {
		t.Errorf("%s", got)
	}
}

func TestPublic(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]skill.Problem{
		"pdf/SKILL.md:3:1: is odd":    {Path: "/srv/skills/pdf/SKILL.md", Root: "/srv/skills", Line: 3, Column: 1},
		"team/pdf/SKILL.md:3: is odd": {Path: "../skills/team/pdf/SKILL.md", Root: "../skills", Line: 3},
		".: is odd":                   {Path: "/srv/skills", Root: "/srv/skills"},
		"secret/SKILL.md: is odd":     {Path: "/srv/secret/SKILL.md"},
		"b/SKILL.md: is odd":          {Path: "/srv/skillset/b/SKILL.md", Root: "/srv/skills"},
		"a/SKILL.md: is odd":          {Path: "a/SKILL.md"},
		"skill pdf: is odd":           {Skill: "pdf"},
		"is odd":                      {},
	} {
		p.Message, p.Detail = "is odd", "see /srv"
		if got := p.Public(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := p.Error(); !strings.HasSuffix(got, "is odd (see /srv)") {
			t.Error(got)
		}
	}
}

func TestContentName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`<skill_content name="pdf" digest="00">` + "\nx": "pdf", `<skill_content name="pdf`: "", `<skill_content name="a/b">`: "", " <skill_content name=\"pdf\">": "",
		"The skill pdf is loaded already.": "", "": "",
	} {
		if got := skill.ContentName(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
