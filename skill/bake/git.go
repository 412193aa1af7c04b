package bake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// fetchTime is how long reading one source may take.
	fetchTime = 2 * time.Minute
	// maxMemory is how many bytes of memory a process of git may use.
	maxMemory = 2 << 30
)

// repository is a bare repository of our own, with the objects of one remote. It has no
// work tree: files are read from the objects, so that nothing that a source contains is
// ever checked out, filtered, linked or run.
type repository struct {
	program string
	dir     string
	remote  remote
	maxSize int64 // how many bytes of objects are accepted
	// maxMemory is how many bytes of memory git may use, where that can be limited.
	maxMemory uint64
	sha256    bool // whether ids are SHA-256
}

// newRepository creates a repository in a directory below dir. sha is a commit of the
// remote, or empty if none is known.
func newRepository(ctx context.Context, dir string, from remote, sha string) (*repository, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("skills are read with git, which cannot be run; install it: %w", err)
	}
	own, err := os.MkdirTemp(dir, "source-*")
	if err != nil {
		return nil, err
	}
	r := &repository{program: program, dir: own, remote: from, maxSize: MaxFetched, maxMemory: maxMemory}
	if err := r.init(ctx, sha); err != nil {
		return nil, err
	}
	return r, nil
}

// init makes the repository one for objects with ids such as that of a commit. If none is
// known, they are SHA-1.
func (r *repository) init(ctx context.Context, commit string) error {
	args := []string{"init", "--quiet", "--bare", "--template=", "--initial-branch=main"}
	if r.sha256 = len(commit) == 64; r.sha256 {
		args = append(args, "--object-format=sha256")
	}
	_, err := r.run(ctx, nil, args...)
	return err
}

// settings override what the user's configuration may say. That configuration is used,
// because it has the credential helpers, proxies and certificates that reaching a server
// takes. But no hook of it runs, and nothing is fetched but what is asked for.
var settings = []string{
	"core.hooksPath=" + os.DevNull,
	"core.fsmonitor=false",
	"gc.auto=0",
	"maintenance.auto=false",
	"fetch.recurseSubmodules=false",
	"submodule.recurse=false",
	"fetch.writeCommitGraph=false",
	"fetch.uriProtocols=",
	"transfer.bundleURI=false",
}

// keptVariables are the variables of git that say how to reach servers and where the user's
// configuration is. A name that ends in _ stands for all that begin with it. All others,
// such as GIT_DIR in a hook, are meant for another repository or would lift our limits.
var keptVariables = []string{
	"GIT_SSL_", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_PROXY_COMMAND", "GIT_PROXY_SSL_", "GIT_HTTP_",
	"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_EXEC_PATH",
}

// strangerSettings keep the user's credentials from a host that the user has not named. What
// the configuration has for that very host in http.<url>.extraHeader is meant for it.
var strangerSettings = []string{
	"credential.helper=",
	"core.askPass=",
	"http.extraHeader=",
	"http.followRedirects=false",
	"http.emptyAuth=false", // which would answer with the user's login on Windows
}

// environment returns the variables for git.
func (r *repository) environment(all []string) []string {
	var env []string
	for _, variable := range all {
		name, _, _ := strings.Cut(variable, "=")
		if r.remote.stranger && (name == "GIT_ASKPASS" || name == "SSH_ASKPASS") {
			continue
		}
		keep := func(kept string) bool {
			return name == kept || strings.HasSuffix(kept, "_") && strings.HasPrefix(name, kept)
		}
		if !strings.HasPrefix(name, "GIT_") || slices.ContainsFunc(keptVariables, keep) {
			env = append(env, variable)
		}
	}
	protocols := "https:ssh"
	if r.remote.local() {
		protocols = r.remote.scheme
	}
	return append(env,
		"GIT_TERMINAL_PROMPT=0",
		// It overrides protocol.<name>.allow of the user's configuration, which settings of
		// protocol.allow would not. It counts for redirects, too.
		"GIT_ALLOW_PROTOCOL="+protocols,
		"GIT_NO_LAZY_FETCH=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"LC_ALL=C", "LANGUAGE=",
	)
}

// command returns a command of git on the repository. It and what it starts are killed when
// ctx ends.
func (r *repository) command(ctx context.Context, args ...string) *exec.Cmd {
	all := []string{"--git-dir=" + r.dir}
	for _, setting := range settings {
		all = append(all, "-c", setting)
	}
	if r.remote.scheme == "http" { // it is for this machine, and so would have to be where it leads
		all = append(all, "-c", "http.followRedirects=false")
	}
	if r.remote.stranger {
		for _, setting := range strangerSettings {
			all = append(all, "-c", setting)
		}
	}
	cmd := exec.CommandContext(ctx, r.program, append(all, args...)...)
	cmd.Dir = r.dir
	cmd.Env = r.environment(os.Environ())
	cmd.WaitDelay = 5 * time.Second
	detach(cmd)
	return cmd
}

// maxOutput is how many bytes the output of a command may have.
const maxOutput = 32 << 20

// run runs a command and returns its output.
func (r *repository) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	cmd := r.command(ctx, args...)
	out, complaints := &limited{limit: maxOutput}, &limited{limit: 16 << 10, cut: true}
	cmd.Stdout, cmd.Stderr = out, complaints
	if input != nil {
		cmd.Stdin = bytes.NewReader(input)
	}
	err := r.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if out.over {
		return nil, fmt.Errorf("git %s printed more than %d bytes", args[0], maxOutput)
	}
	return out.data, r.failure(ctx, err, args[0], complaints.data)
}

// start starts a command.
func (r *repository) start(cmd *exec.Cmd) error {
	err := cmd.Start()
	if err == nil {
		limitMemory(cmd.Process, r.maxMemory)
	}
	return err
}

// limited is a buffer that takes up to limit bytes. More is an error, or is ignored if cut
// is set.
type limited struct {
	data  []byte
	limit int
	cut   bool
	over  bool
}

func (l *limited) Write(p []byte) (int, error) {
	room := min(len(p), l.limit-len(l.data))
	l.data = append(l.data, p[:room]...)
	if room < len(p) && !l.cut {
		l.over = true
		return room, errTooLarge
	}
	return len(p), nil
}

// gitError is a command of git that failed.
type gitError struct {
	command string
	remote  remote
	says    string // what it printed
	err     error
}

func (e *gitError) Error() string {
	text := fmt.Sprintf("git %s of %s failed: ", e.command, e.remote.url)
	if e.says == "" {
		return text + e.err.Error()
	}
	for _, sign := range []string{"could not read Username", "could not read Password", "Authentication failed", "Permission denied (publickey"} {
		switch {
		case !strings.Contains(e.says, sign):
		case e.remote.stranger:
			return text + e.says + " (your credentials are not for a host that only the marketplace names: add the repository to the manifest with the type git)"
		default:
			return text + e.says + " (git may not ask for a password here: set up a credential helper or an ssh key)"
		}
	}
	return text + e.says
}

func (e *gitError) Unwrap() error { return e.err }

// failure explains the error of a command.
func (r *repository) failure(ctx context.Context, err error, command string, complaints []byte) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("git %s of %s: %w", command, r.remote.url, context.Cause(ctx))
	}
	return &gitError{command, r.remote, complaint(complaints), err}
}

// complaint returns the last lines of what git printed, as one. It has text of the server.
func complaint(raw []byte) string {
	var lines []string
	for line := range strings.Lines(string(raw)) {
		line = strings.Map(func(r rune) rune {
			if !unicode.IsGraphic(r) {
				return -1
			}
			return r
		}, strings.TrimSpace(line))
		if line != "" && !strings.HasPrefix(line, "hint:") {
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines[max(len(lines)-4, 0):], "; ")
	if runes := []rune(text); len(runes) > 500 {
		text = string(runes[:500]) + "…"
	}
	return text
}

// pin says which commit of a repository is wanted.
type pin struct {
	ref, sha, version string
}

// names returns the full names of the refs that the pin may mean, the first that exists
// counts.
func (p pin) names() []string {
	switch {
	case p.version != "" && strings.HasPrefix(p.version, "v"):
		return []string{"refs/tags/" + p.version}
	case p.version != "":
		return []string{"refs/tags/v" + p.version, "refs/tags/" + p.version}
	case p.ref == "" || p.ref == "HEAD":
		return []string{"HEAD"}
	case strings.HasPrefix(p.ref, "refs/"):
		return []string{p.ref}
	}
	return []string{"refs/tags/" + p.ref, "refs/heads/" + p.ref}
}

// String names the ref in messages.
func (p pin) String() string {
	switch {
	case p.version != "":
		return "version " + p.version
	case p.ref != "":
		return p.ref
	}
	return "the default branch"
}

// findRef returns the full name of the remote's ref for a pin, and the commit that it
// points to.
func (r *repository) findRef(ctx context.Context, p pin) (ref, commit string, err error) {
	names := p.names()
	args := []string{"ls-remote", "--quiet", "--", r.remote.url}
	for _, name := range names {
		args = append(args, name, name+"^{}")
	}
	out, err := r.run(ctx, nil, args...)
	if err != nil {
		return "", "", err
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		id, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if ok && shaName.MatchString(id) {
			found[name] = id
		}
	}
	for _, name := range names {
		if id := found[name+"^{}"]; id != "" { // what an annotated tag points to
			return name, id, nil
		}
		if id := found[name]; id != "" {
			return name, id, nil
		}
	}
	if p.version != "" {
		return "", "", fmt.Errorf("%s has no tag for version %s; there is neither %s", r.remote.url, p.version, strings.Join(names, " nor "))
	}
	return "", "", fmt.Errorf("%s has no tag or branch %s", r.remote.url, p)
}

// fetched is the name that what was fetched has in our repository.
const fetched = "refs/helix/fetched"

// get fetches the commit that a pin names and returns its id.
func (r *repository) get(ctx context.Context, p pin) (commit string, err error) {
	if p.sha != "" {
		return p.sha, r.getSHA(ctx, p)
	}
	ref, id, err := r.findRef(ctx, p)
	if err == nil && len(id) == 64 && !r.sha256 {
		if err = os.RemoveAll(r.dir); err == nil { // git does not change the hash of a repository
			err = os.Mkdir(r.dir, 0o700)
		}
		if err == nil {
			err = r.init(ctx, id)
		}
	}
	if err != nil {
		return "", err
	}
	if err := r.fetch(ctx, ref, "--depth=1"); err != nil {
		return "", err
	}
	// The ref may have moved since it was found: what was fetched counts.
	found, err := r.lookUp(ctx, fetched+"^{commit}")
	if err != nil {
		return "", err
	}
	if found[0].kind != "commit" {
		return "", fmt.Errorf("%s of %s does not point to a commit", ref, r.remote.url)
	}
	return found[0].id, nil
}

// getSHA fetches a single commit. A server that does not give one by its id is asked for
// the ref, with its history, in which the commit is looked for.
func (r *repository) getSHA(ctx context.Context, p pin) error {
	err := r.fetch(ctx, p.sha, "--depth=1")
	alone := refusesSHA(err)
	if alone {
		var ref string
		if ref, _, err = r.findRef(ctx, pin{ref: p.ref, version: p.version}); err == nil {
			err = r.fetch(ctx, ref)
		}
	}
	if err != nil {
		return err
	}
	found, err := r.lookUp(ctx, p.sha)
	switch {
	case err != nil:
		return err
	case found[0].kind == "" && alone:
		return fmt.Errorf("%s gives no commit by its id, and %s is not in the history of %s: name the branch that has it as ref", r.remote.url, p.sha, p)
	case found[0].kind != "commit":
		return fmt.Errorf("%s of %s is not a commit", p.sha, r.remote.url)
	}
	return nil
}

// refusesSHA reports whether a server refused to give a commit by its id.
func refusesSHA(err error) bool {
	failed, ok := errors.AsType[*gitError](err)
	if !ok {
		return false
	}
	for _, sign := range []string{"not our ref", "unadvertised object", "couldn't find remote ref"} {
		if strings.Contains(failed.says, sign) {
			return true
		}
	}
	return false
}

// fetch fetches a ref or a commit into our repository. All that could be an option or a
// pattern was refused when the manifest was read.
func (r *repository) fetch(ctx context.Context, what string, options ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watchSize(ctx, cancel)
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	args := append([]string{"fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--force"}, options...)
	_, err := r.run(ctx, nil, append(args, "--", r.remote.url, what+":"+fetched)...)
	if err == nil {
		err = r.checkSize() // it may have been faster than the watch
	}
	return err
}

// watchSize cancels a fetch that writes too much.
func (r *repository) watchSize(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := r.checkSize(); err != nil {
			cancel(err)
			return
		}
	}
}

func (r *repository) checkSize() error {
	if r.size() <= r.maxSize {
		return nil
	}
	return fmt.Errorf("%s sends more than %d bytes; a source may send %d, and all sources together %d", r.remote.url, r.maxSize, MaxFetched, MaxFetchedAll)
}

// size returns how many bytes the objects have.
func (r *repository) size() int64 {
	var total int64
	// Files that come and go while it walks do not matter.
	_ = filepath.WalkDir(filepath.Join(r.dir, "objects"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			total += info.Size()
		}
		return nil
	})
	return total
}
