// Package gitserver serves git repositories over HTTP on this machine, for tests: with git
// itself, through its CGI program git-http-backend.
package gitserver

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Server serves repositories.
type Server struct {
	// URL is the address without a slash at the end.
	URL string
	dir string

	mu sync.Mutex
	// Fields below are guarded by mu; see their setters.
	onlyTips bool
	gate     func(http.ResponseWriter, *http.Request) bool
}

// Start starts a server that ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	backend := filepath.Join(strings.TrimSpace(run(tb, "", nil, "--exec-path")), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		tb.Fatalf("git-http-backend is missing, which belongs to git (on Debian, to the package git): %v", err)
	}
	s := &Server{dir: tb.TempDir()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.mu.Lock()
		onlyTips, gate := s.onlyTips, s.gate
		s.mu.Unlock()
		if gate != nil && !gate(w, req) {
			return
		}
		env := append(environment(), "GIT_PROJECT_ROOT="+s.dir, "GIT_HTTP_EXPORT_ALL=1")
		// Version 2 of the protocol gives any commit by its id.
		if version := req.Header.Get("Git-Protocol"); version != "" && !onlyTips {
			env = append(env, "GIT_PROTOCOL="+version)
		}
		req.Header.Del("Git-Protocol")
		(&cgi.Handler{Path: backend, Env: env, Stderr: tb.Output()}).ServeHTTP(w, req)
	}))
	tb.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// OnlyTips has the server give no commits but those that a ref points to, as old servers do.
func (s *Server) OnlyTips() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onlyTips = true
}

// Gate has the server call gate before each request. If gate returns false, it has answered
// the request.
func (s *Server) Gate(gate func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = gate
}

// Repository is a repository of a server.
type Repository struct {
	tb  testing.TB
	URL string
	Dir string
}

// Repository creates a repository, whose default branch is main. Options are for git init.
func (s *Server) Repository(tb testing.TB, name string, options ...string) *Repository {
	tb.Helper()
	r := &Repository{tb, s.URL + "/" + name + ".git", filepath.Join(s.dir, name+".git")}
	run(tb, "", nil, append([]string{"init", "--quiet", "--bare", "--initial-branch=main", r.Dir}, options...)...)
	return r
}

// File is an entry of a commit. The mode is git's; it defaults to that of a file.
type File struct {
	Mode    string
	Content string
}

// Files are the entries of a commit by path.
type Files map[string]File

// Text is a file.
func Text(content string) File { return File{Content: content} }

// Script is an executable file.
func Script(content string) File { return File{"100755", content} }

// Link is a symbolic link.
func Link(target string) File { return File{"120000", target} }

// Submodule is a commit of another repository.
func Submodule() File { return File{"160000", strings.Repeat("a", 40)} }

// Commit commits files to a branch, in place of all that it had, and returns the commit's id.
func (r *Repository) Commit(branch string, files Files) string {
	r.tb.Helper()
	var in bytes.Buffer
	data := func(text string) { fmt.Fprintf(&in, "data %d\n%s\n", len(text), text) }
	ref := "refs/heads/" + branch
	parent := strings.TrimSpace(r.Try("rev-parse", "--verify", "--quiet", ref))
	fmt.Fprintf(&in, "commit %s\ncommitter Test <test@localhost> 1700000000 +0000\n", ref)
	data("a commit")
	if parent != "" {
		fmt.Fprintf(&in, "from %s\n", parent)
	}
	in.WriteString("deleteall\n")
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		if f.Mode == "160000" {
			fmt.Fprintf(&in, "M 160000 %s %s\n", f.Content, path)
			continue
		}
		mode := f.Mode
		if mode == "" {
			mode = "100644"
		}
		fmt.Fprintf(&in, "M %s inline %s\n", mode, path)
		data(f.Content)
	}
	run(r.tb, r.Dir, in.Bytes(), "fast-import", "--quiet", "--force")
	return r.Git("rev-parse", ref)
}

// Tree writes a tree with entries of any name, also those that git itself would refuse, and
// returns its id.
func (r *Repository) Tree(files Files) string {
	r.tb.Helper()
	var in bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		id := f.Content // of a tree or a commit
		mode := f.Mode
		if mode != "40000" && mode != "160000" {
			id = strings.TrimSpace(run(r.tb, r.Dir, []byte(f.Content), "hash-object", "-w", "--stdin"))
		}
		if mode == "" {
			mode = "100644"
		}
		fmt.Fprintf(&in, "%s %s\x00", mode, name)
		for i := 0; i < len(id); i += 2 {
			var b byte
			if _, err := fmt.Sscanf(id[i:i+2], "%02x", &b); err != nil {
				r.tb.Fatal(err)
			}
			in.WriteByte(b)
		}
	}
	return strings.TrimSpace(run(r.tb, r.Dir, in.Bytes(), "hash-object", "-t", "tree", "-w", "--stdin", "--literally"))
}

// Below is an entry for a tree.
func Below(tree string) File { return File{"40000", tree} }

// CommitTree commits a tree to a branch and returns the commit's id.
func (r *Repository) CommitTree(branch, tree string) string {
	r.tb.Helper()
	id := r.Git("commit-tree", "-m", "a commit", tree)
	r.Git("update-ref", "refs/heads/"+branch, id)
	return id
}

// Git runs git in the repository and returns its output without the line end.
func (r *Repository) Git(args ...string) string {
	r.tb.Helper()
	return strings.TrimSpace(run(r.tb, r.Dir, nil, args...))
}

// Try is Git for a command that may fail, for which it returns "".
func (r *Repository) Try(args ...string) string {
	cmd := command(r.tb, r.Dir, args...)
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// environment returns the variables for git: without the configuration of whoever runs the
// tests.
func environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_NAME=Test", "GIT_AUTHOR_EMAIL=test@localhost", "GIT_COMMITTER_NAME=Test", "GIT_COMMITTER_EMAIL=test@localhost",
		"GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000",
	}
}

func command(tb testing.TB, dir string, args ...string) *exec.Cmd {
	if dir != "" {
		args = append([]string{"--git-dir=" + dir}, args...)
	}
	cmd := exec.CommandContext(tb.Context(), "git", args...)
	cmd.Env = environment()
	return cmd
}

func run(tb testing.TB, dir string, input []byte, args ...string) string {
	tb.Helper()
	cmd := command(tb, dir, args...)
	cmd.Stdin = bytes.NewReader(input)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, complaints.Bytes())
	}
	return string(out)
}
