package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check runs helix check on a file with that content.
func check(t *testing.T, content string, args ...string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "helix.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return checkPath(path, args...)
}

func checkPath(path string, args ...string) (string, error) {
	cmd := rootCommand(nil)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"check", "--config", path}, args...))
	err := cmd.Execute()
	return strings.ReplaceAll(out.String(), filepath.Dir(path)+string(filepath.Separator), ""), err
}

// closed is what a check says of a file without tokens.
const closed = "It has no tokens, so helix serve starts only with --allow-unauthenticated.\n"

func TestCheckValid(t *testing.T) {
	t.Parallel()
	out, err := check(t, "version: 1\nagents: {a: {model: demo, tools: [t]}, b: {model: demo}}\ntools: {t: {type: client, description: Chooses.}}\n")
	if err != nil || out != "helix.yaml is valid: 2 agents, 1 tool\n"+closed {
		t.Errorf("%s, %v", out, err)
	}
	remote := "version: 1\nagents: {a: {model: demo, remotes: [{name: far, url: 'https://example.com'}]}}\n"
	if out, err := check(t, remote); err != nil || strings.Contains(out, "warning") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestCheckBroken(t *testing.T) {
	t.Parallel()
	const broken = "version: 1\nagents: {a: {modl: demo, model: demo, tools: [t]}}\n"
	out, err := check(t, broken)
	want := "helix.yaml:2:14: agents.a.modl: unknown key; did you mean model?\n" +
		"helix.yaml:2:47: agents.a.tools[0]: there is no tool \"t\"; define it in the section tools, which the file does not have\n"
	if !errors.Is(err, errRefusedConfig) || out != want {
		t.Errorf("%s, %v", out, err)
	}
	out, err = check(t, broken, "--json")
	var report checkReport
	if jsonErr := json.Unmarshal([]byte(out), &report); jsonErr != nil || !errors.Is(err, errRefusedConfig) {
		t.Fatalf("%s, %v, %v", out, err, jsonErr)
	}
	if report.OK || len(report.Problems) != 2 || report.Problems[1].Column != 47 || report.Problems[1].Path != "agents.a.tools[0]" {
		t.Errorf("%+v", report)
	}
}

// A key that is only missing here does not make a file invalid.
func TestCheckWarns(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	out, err := check(t, "version: 1\nagents:\n  a: {model: openai/gpt-5}\n")
	if err != nil || !strings.HasPrefix(out, "warning: helix.yaml:3:14: agents.a.model: ") || !strings.Contains(out, "OPENAI_API_KEY") ||
		!strings.HasSuffix(out, "helix.yaml is valid: 1 agent\n"+closed) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestCheckWithoutAFile(t *testing.T) {
	t.Parallel()
	if _, err := checkPath(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "there is no file") {
		t.Errorf("%v", err)
	}
}

func TestCheckExitCode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.yaml")
	if err := os.WriteFile(path, []byte("version: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"check", "--config", path}, nil, io.Discard, io.Discard); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	if code := run([]string{"check", "extra"}, nil, io.Discard, io.Discard); code != exitUsage {
		t.Errorf("exit code of a bad command line %d", code)
	}
}

// What is wrong with a skill is told with its file, line and column.
func TestCheckSkills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"helix.yaml":           "version: 1\nagents: {a: {model: demo, skills: [pdf]}}\nskills: {dirs: [skills]}\n",
		"skills/pdf/SKILL.md":  "---\nname: pdf\ndescription: \"Reads PDFs.\"\n---\nRead it.\n",
		"skills/csv/SKILL.md":  "---\nname: csv\ndescription: [\n---\n",
		"skills/dash/SKILL.md": "---\nname: a/b\ndescription: D\n---\n",
		"skills/zero/SKILL.md": "---\nname: zero\ndescription: D\n---\na\n\x00",
		"skills/none/SKILL.md": "---\nname: none\n---\n",
		"skills/big/SKILL.md":  "---\nname: big\ndescription: D\n---\n" + strings.Repeat("x", 1<<20),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "helix.yaml")
	out, err := checkPath(path)
	if !errors.Is(err, errRefusedConfig) {
		t.Error(err)
	}
	for _, want := range []string{
		"skills/big/SKILL.md:1:1: cannot be read: it has 1048609 bytes", "skills/csv/SKILL.md:3:", `skills/dash/SKILL.md:2:7: name "a/b" contains '/'`,
		"skills/none/SKILL.md:1:1: description is missing", "skills/zero/SKILL.md:6:1: contains a zero byte",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, bad := range []string{"csv", "dash", "zero", "none", "big"} {
		if err := os.RemoveAll(filepath.Join(dir, "skills", bad)); err != nil {
			t.Fatal(err)
		}
	}
	const valid = "helix.yaml is valid: 1 agent, 1 skill\n" + closed
	if out, err := checkPath(path); err != nil || out != valid {
		t.Errorf("%s, %v", out, err)
	}
	// Of two skills with the same name one counts, which is a warning.
	again := filepath.Join(dir, "skills", "team", "pdf")
	if err := os.MkdirAll(again, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(again, "SKILL.md"), []byte("---\nname: pdf\ndescription: Hidden.\n---\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = checkPath(path)
	if err != nil || !strings.HasSuffix(out, valid) || !strings.Contains(out, "warning: ") || !strings.Contains(out, "skills/team/pdf/SKILL.md:1:1: the skill pdf is hidden by") {
		t.Errorf("%s, %v", out, err)
	}
}

// TestCheckWarnsOfTraps checks what is valid and probably not meant.
func TestCheckWarnsOfTraps(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"server: {tokens: [{token: change-me-before-use, user: a}]}":                                                                      "helix.yaml:3:27: server.tokens[0].token: this token is in a public example",
		"server: {tokens: [{token: 0123456789abcdef, user: a}]}\ntools: {t: {type: client, description: d, approvers: user.id != owner}}": "helix.yaml:4:54: tools.t.approvers: no token is an operator's",
		"tools: {t: {type: client}}": "helix.yaml:3:9: tools.t: the tool has no description",
		"tools: {t: {type: http, description: d, url: 'http://127.0.0.1:80/{a}', input: {type: object, properties: {a: {type: string}}, required: [a]}}}": "tools.t.url: the service is on this machine",
		"tools: {t: {type: http, description: d, url: 'https://10.1.2.3/'}}":                                                                              "tools.t.url: the service is on this machine",
		"tools: {t: {type: http, description: d, url: 'http://localhost/'}}":                                                                              "tools.t.url: the service is on this machine",
		"runtime: {kind: temporal}\nstore: 'memory:'":                                                                                                     "runtime: helix serve refuses this: the store memory:",
	} {
		out, err := check(t, "version: 1\nagents: {a: {model: demo}}\n"+file+"\n")
		if err != nil || strings.Count(out, "warning: ") != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%swant %s", file, err, out, want)
		}
	}
	const fine = "version: 1\nagents: {a: {model: demo}}\nserver: {tokens: [{token: 0123456789abcdef, user: a}]}\n" +
		"tools: {t: {type: http, description: d, url: 'http://127.0.0.1/', allowPrivate: true}, u: {type: http, description: d, url: 'https://example.com'}}\n"
	if out, err := check(t, fine); err != nil || out != "helix.yaml is valid: 1 agent, 2 tools\n" {
		t.Errorf("%s, %v", out, err)
	}
}

// TestTypicalMistakes has what people get wrong in their first file, and what they are told.
func TestTypicalMistakes(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"agents: {a: {model: demo}}":                                        "1:1: the key version is missing",
		"version: 2\nagents: {a: {model: demo}}":                            "1:10: version: expected 1, the only version",
		"version: 1\nagent: {a: {model: demo}}":                             "2:1: agent: unknown key; did you mean agents?",
		"version: 1\nagents:\n\ta: {model: demo}":                           "3:1: a tab begins the line; YAML is indented with spaces",
		"version: 1\nagents: {a: {modell: demo}}":                           "2:14: agents.a.modell: unknown key; did you mean model?",
		"version: 1\nagents: {a: {model: gpt-5}}":                           `2:21: agents.a.model: there is no model "gpt-5"; there is demo or auto; a model of a provider is written as in openai/gpt-5`,
		"version: 1\nagents: {a: {model: opnai/gpt-5}}":                     "2:21: agents.a.model: expected provider/model, demo or auto; the providers are openai, openai-chat, anthropic or gemini",
		"version: 1\nagents: {a: {model: demo, tools: [clock]}}":            `2:35: agents.a.tools[0]: there is no tool "clock"; define it in the section tools, which the file does not have`,
		"version: 1\nagents: {a: {model: demo, tools: clock}}":              `2:34: agents.a.tools: expected a list, found "clock"`,
		"version: 1\nagents: {a: {model: demo, maxSteps: many}}":            `2:37: agents.a.maxSteps: expected a whole number or unlimited, found "many"`,
		"version: 1\nagents: {a b: {model: demo}}":                          `2:10: agents.a b: agent name "a b" must be a letter followed by up to 63 letters, digits or _.-`,
		"version: 1\nagents: {a: {model: \"${NO_SUCH_VARIABLE}\"}}":         "2:22: agents.a.model: the environment variable NO_SUCH_VARIABLE is not set; set it, or give a default as in ${NO_SUCH_VARIABLE:-default}",
		"version: 1\nagents: {a: {model: demo, subAgents: [b]}}":            `2:39: agents.a.subAgents[0]: there is no agent "b"; there is a`,
		"version: 1\nagents: {a: {model: demo}}\ntools: {t: {type: https}}": `3:19: tools.t.type: expected http, client or builtin, found "https"; did you mean http?`,
		"version: 1\nagents: {a: {model: demo, sessionExpiry: 5}}":          `2:42: agents.a.sessionExpiry: expected a duration such as 90s, 1h30m or 7d, found "5"`,
	} {
		out, err := check(t, file+"\n")
		if !errors.Is(err, errRefusedConfig) || !strings.Contains("\n"+out, "\nhelix.yaml:"+want+"\n") {
			t.Errorf("%s: %v\n%swant %s", file, err, out, want)
		}
	}
}
