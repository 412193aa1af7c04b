package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/testshare"
)

const (
	module = "github.com/helixagents/helix"
	tagged = "v0.999.99" // only in this test
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
		"GOPROXY=file://" + proxy + ",file://" + downloads, "GOMODCACHE=" + cache, "GONOSUMDB=*", "GOFLAGS=-modcacherw -trimpath",
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

// publish makes a release of the repository at root, in a clone of it, and puts what its tag
// has into a proxy: not the modules below.
func publish(t *testing.T, root, proxy string) {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "helix")
	command(t, root, nil, "git", "clone", "-q", "--no-tags", root, clone)
	command(t, clone, nil, "git", "checkout", "-q", "-B", branch)
	command(t, clone, nil, "git", "config", "user.name", "Tester")
	command(t, clone, nil, "git", "config", "user.email", "tester@example.com")
	if err := release(t.Context(), io.Discard, clone, tagged, time.Now()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	pack := []string{"archive", "--format=zip", "--prefix=" + module + "@" + tagged + "/", "-o", filepath.Join(dir, tagged+".zip"), tagged, "--", "."}
	for name := range strings.Lines(command(t, clone, nil, "git", "ls-files", "*/go.mod")) {
		pack = append(pack, ":!"+path.Dir(strings.TrimSpace(name)))
	}
	command(t, clone, nil, "git", pack...)
	info, err := json.Marshal(map[string]string{"Version": tagged, "Time": "2026-01-01T00:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"list": tagged + "\n", tagged + ".info": string(info), tagged + ".mod": command(t, clone, nil, "git", "show", tagged+":go.mod"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
