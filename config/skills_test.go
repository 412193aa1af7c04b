package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

// withSkills writes a file and skills beside it, and returns the path of the file.
func withSkills(t *testing.T, text string, all map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all["helix.yaml"] = "version: 1\n" + text
	for name, content := range all {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "helix.yaml")
}

const pdfSkill = "---\nname: pdf\ndescription: Reads PDFs.\n---\nRead it.\n"

// listedSkills returns the names of an agent's skills.
func listedSkills(t *testing.T, agent *helix.Agent) string {
	t.Helper()
	var out []string
	for _, x := range agent.Extensions {
		list, err := x.(*skills.Extension).Skills(t.Context(), skill.Scope{Agent: agent.Name})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			out = append(out, m.Name)
		}
	}
	return strings.Join(out, " ")
}

func TestSkills(t *testing.T) {
	t.Parallel()
	path := withSkills(t, `skills: {dirs: [./own, shared], embed: true}
agents:
  a: {model: demo, skills: all}
  b: {model: demo, skills: [csv]}
  c: {model: demo, skills: {only: [pdf, csv], preload: [pdf], allowedTools: restrict}}
  d: {model: demo, skills: {}}
  e: {model: demo}
`, map[string]string{
		"own/pdf/SKILL.md": pdfSkill, "shared/csv/SKILL.md": "---\nname: csv\ndescription: Reads CSV.\n---\n",
		"shared/pdf/SKILL.md": "---\nname: pdf\ndescription: Hidden.\n---\n", "shared/bad/SKILL.md": "---\nname: bad\n---\n",
	})
	file, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	embedded := files.FS(fstest.MapFS{"own/SKILL.md": {Data: []byte("---\nname: own\ndescription: The program's.\n---\n")}})
	agents, err := file.Build(BuildOptions{Skills: embedded})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"csv own pdf", "csv", "csv pdf", "csv own pdf", ""} {
		if got := listedSkills(t, agents[i]); got != want {
			t.Errorf("%s has %q", agents[i].Name, got)
		}
	}
	attached, err := agents[2].Extensions[0].Attach(t.Context(), &helix.Turn{})
	if err != nil || !strings.Contains(attached.Instructions, `<skill name="pdf" loaded="true">Reads PDFs.</skill>`) {
		t.Errorf("%+v, %v", attached, err)
	}
	names, problems, warnings := file.CheckSkills(embedded)
	if strings.Join(names, " ") != "csv own pdf" || len(problems) != 1 || len(warnings) != 1 {
		t.Fatalf("%v\n%v\n%v", names, problems, warnings)
	}
	if p := problems[0]; !strings.HasSuffix(p.File, "shared/bad/SKILL.md") || p.Line != 1 || p.Column != 1 || !strings.Contains(p.Message, "description is missing") {
		t.Errorf("%+v", p)
	}
	if p := warnings[0]; !strings.HasSuffix(p.File, "shared/pdf/SKILL.md") || !strings.Contains(p.Message, "hidden by another one of its name (in ") || !strings.Contains(p.Message, "own/pdf)") {
		t.Errorf("%+v", p)
	}
}

// What is wrong with the skills of a file is told with the line.
func TestBrokenSkills(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"no skills":      {"agents: {a: {model: demo, skills: all}}\n", "helix.yaml:2:35: agents.a.skills: the file has no skills"},
		"another word":   {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: some}}\n", `helix.yaml:3:35: agents.a.skills: expected all, a list of names`},
		"a number":       {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: 1}}\n", `helix.yaml:3:35: agents.a.skills: expected all, a list of names`},
		"a bad name":     {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: [a/b]}}\n", `helix.yaml:3:36: agents.a.skills.only[0]: name "a/b" contains '/'`},
		"a name twice":   {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: [pdf, pdf]}}\n", `helix.yaml:3:41: agents.a.skills.only[1]: the skill "pdf" is listed twice`},
		"not among them": {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: {only: [pdf], preload: [csv]}}}\n", `helix.yaml:3:59: agents.a.skills.preload[0]: the skill "csv" is not one of those in only`},
		"unknown key":    {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: {load: [pdf]}}}\n", `helix.yaml:3:36: agents.a.skills.load: unknown key`},
		"a policy":       {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: {allowedTools: allow}}}\n", `helix.yaml:3:50: agents.a.skills.allowedTools: expected tell or restrict`},
		"a dir twice":    {"skills: {dirs: [s, s]}\nagents: {a: {model: demo}}\n", `helix.yaml:2:20: skills.dirs[1]: the directory "s" is listed twice`},
		"no dir":         {"skills: {dirs: ['']}\nagents: {a: {model: demo}}\n", `helix.yaml:2:17: skills.dirs[0]: expected the path of a directory`},
		// What only shows when the directories are read.
		"no such dir":        {"skills: {dirs: [s, none]}\nagents: {a: {model: demo, skills: all}}\n", `helix.yaml:2:20: skills.dirs[1]: the directory`},
		"a file":             {"skills: {dirs: [helix.yaml]}\nagents: {a: {model: demo, skills: all}}\n", `it is not a directory`},
		"no such skill":      {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: [pfd]}}\n", `helix.yaml:3:36: agents.a.skills.only[0]: there is no skill "pfd"; did you mean pdf?`},
		"no such one":        {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: {preload: [zzz]}}}\n", `helix.yaml:3:46: agents.a.skills.preload[0]: there is no skill "zzz"`},
		"a broken skill":     {"skills: {dirs: [s]}\nagents: {a: {model: demo, skills: [bad]}}\n", `s/bad/SKILL.md:3:14: description has`},
		"nothing of its own": {"skills: {embed: true}\nagents: {a: {model: demo, skills: all}}\n", `helix.yaml:2:17: skills.embed: this program has no skills of its own`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := withSkills(t, c.text, map[string]string{
				"s/pdf/SKILL.md": pdfSkill, "s/bad/SKILL.md": "---\nname: bad\ndescription: " + strings.Repeat("d", 5000) + "\n---\n",
			})
			file, err := Load(path)
			if err == nil {
				_, err = file.Build(BuildOptions{})
				if _, problems, _ := file.CheckSkills(nil); len(problems) == 0 {
					t.Error("CheckSkills finds nothing")
				}
			}
			failure, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("%v", err)
			}
			if got := strings.ReplaceAll(failure.Error(), filepath.Dir(path)+"/", ""); !strings.Contains(got, c.want) {
				t.Errorf("%s", got)
			}
		})
	}
}
