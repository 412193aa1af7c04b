package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/testshare"
)

const (
	module = "github.com/helixagents/helix"
	tagged = "v0.0.99" // only in this test
)

// user is a program of somebody who uses the module.
const user = `package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

func main() {
	ctx := context.Background()
	agent := &helix.Agent{Name: "guide", Model: scripted.New(scripted.Text("It works."))}
	rt, err := local.New(local.Config{Backend: memory.New(memory.Config{}), Agents: []*helix.Agent{agent}})
	if err != nil {
		panic(err)
	}
	run, err := rt.Execute(ctx, agent, helix.Input{Message: helix.UserText("Does it?")})
	if err != nil {
		panic(err)
	}
	res, err := run.Result(ctx)
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "github.com/helixagents/helix" {
			fmt.Println(res.Text, dep.Version, err)
		}
	}
}
`

// TestModuleOfATag uses a tagged version of this module from an empty one, as everybody can
// once it is published: it comes from a proxy, which here is a directory.
func TestModuleOfATag(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 5, 8)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	proxy, cache, project := t.TempDir(), t.TempDir(), t.TempDir()
	publish(t, root, proxy)
	downloads := filepath.Join(strings.TrimSpace(command(t, root, nil, "go", "env", "GOMODCACHE")), "cache", "download")
	env := []string{
		"GOPROXY=file://" + proxy + ",file://" + downloads, "GOMODCACHE=" + cache, "GONOSUMDB=*", "GONOSUMCHECK=1", "GOFLAGS=-modcacherw -trimpath",
		"GOWORK=off", "CGO_ENABLED=0",
	}
	if err := os.WriteFile(filepath.Join(project, "main.go"), []byte(user), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, project, env, "go", "mod", "init", "example.com/app")
	command(t, project, env, "go", "get", module+"@"+tagged)
	if out := command(t, project, env, "go", "run", "."); out != "It works. "+tagged+" <nil>\n" {
		t.Errorf("the program says %q", out)
	}
}

// command runs a program in a directory, and returns what it wrote.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, complaints.Bytes())
	}
	return string(out)
}

// publish puts the module at root into a proxy, with what a proxy takes of it: not the
// modules below, and nothing that git does not know.
func publish(t *testing.T, root, proxy string) {
	t.Helper()
	files := strings.Fields(command(t, root, nil, "git", "ls-files", "--cached", "--others", "--exclude-standard"))
	var below []string
	for _, name := range files {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			below = append(below, path.Dir(name)+"/")
		}
	}
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	for _, name := range files {
		if belongsBelow(name, below) {
			continue
		}
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || info.Mode()&fs.ModeType != 0 {
			continue // deleted, or a link
		}
		body, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		entry, err := archive.Create(module + "@" + tagged + "/" + name)
		if err == nil {
			_, err = entry.Write(body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := json.Marshal(map[string]string{"Version": tagged, "Time": "2026-01-01T00:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{
		"list": []byte(tagged + "\n"), tagged + ".info": info, tagged + ".mod": mod, tagged + ".zip": packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func belongsBelow(name string, modules []string) bool {
	for _, dir := range modules {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}
