package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// fleet is a server that only starts turns, and the flags of its workers. The file says
// where Temporal is.
type fleet struct {
	*daemon
	dir   string
	store string
	flags []string
}

// newFleet serves the demo without working on it.
func newFleet(t *testing.T, pace string) *fleet {
	t.Helper()
	f := &fleet{dir: writeDemo(t, pace, fmt.Sprintf(`runtime:
  kind: temporal
  leaseTTL: 3s
  sweep: 100ms
  temporal: {address: %q, taskQueue: helix-%016x, workerTimeout: 2s, worker: false}
`, testserver.Temporal(t), rand.Uint64()))}
	for _, kind := range testbackend.Shared() {
		if kind.Name == "postgres" {
			f.store = kind.Address(t)
		}
	}
	f.flags = []string{"--config", defaultConfig, "--store", f.store}
	f.daemon = serve(t, f.dir, append([]string{"--allow-unauthenticated"}, f.flags...)...)
	return f
}

// worker starts a worker and returns once it works.
func (f *fleet) worker(args ...string) *program {
	f.t.Helper()
	w := startIn(f.t, f.dir, nil, append(append([]string{"worker"}, f.flags...), args...)...)
	w.await(w.err, "\n  data: ")
	if !strings.Contains(w.err.String(), "helix: running turns\n  agents: assistant") || !strings.Contains(w.err.String(), "\n  turns:  Temporal at ") {
		f.t.Errorf("it said\n%s", w.err)
	}
	return w
}

// A worker that is killed in the middle of a reply, or of another agent's, is replaced
// by the next one: the reader gets every chunk once, and the same runs continue.
func TestWorkerKilledInMidTurn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "20ms")
	if !strings.Contains(f.err.String(), "; workers run the turns\n") {
		t.Errorf("it said\n%s", f.err)
	}
	begin(t, f.Client, "assistant", "tale", askStory) // nobody is there yet
	begin(t, f.Client, "planner", "errand", "Ask the buyer to order ten pencils.")
	first := f.worker()
	tale := read(t, f.Client, "tale")
	tale.words(5)
	first.signal(os.Kill)
	first.wait()
	second := f.worker()
	tale.toEnd(f.Client, session.Completed)
	tellsStory(t, f.Client, "tale")
	if n := tale.count(stream.StepStarted); n != 2 {
		t.Errorf("the reply was begun %d times, by two workers", n)
	}
	for range read(t, f.Client, "errand").items { // until it waits
	}
	k := &talkOver{t, f.Client, "errand"}
	status, err := f.Status(t.Context(), k.id)
	if err != nil {
		t.Fatal(err)
	}
	_, status = k.answer(status, "order", granting(true, ""))
	k.completes(status, "The buyer says: It is ordered.")
	for id, want := range map[string]int{"tale": 1, "errand": 2} {
		runs, err := f.Runs(t.Context(), id, session.PageRequest{})
		if err != nil || len(runs.Items) != want {
			t.Errorf("%s has %d runs, want %d; %v", id, len(runs.Items), want, err)
		}
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, second.err)
	}
	f.stop()
}

// A worker that is told to stop ends what it works on within the grace, and takes on
// nothing new. A second signal does not wait: another worker continues.
func TestWorkerStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "20ms")
	w := f.worker("--grace", "5m")
	begin(t, f.Client, "assistant", "tale", askStory)
	tale := read(t, f.Client, "tale")
	tale.words(3)
	w.signal(syscall.SIGTERM)
	if code := w.wait(); code != 0 || !strings.Contains(w.err.String(), "helix: stopping; ") {
		t.Errorf("exit code %d:\n%s", code, w.err)
	}
	tellsStory(t, f.Client, "tale") // no other worker could have continued it
	tale.toEnd(f.Client, session.Completed)
	if n := tale.count(stream.StepStarted); n != 1 {
		t.Errorf("the reply was begun %d times", n)
	}

	setPace(t, f.dir, "20ms", "1s")
	w = f.worker("--grace", "10m")
	begin(t, f.Client, "assistant", "again", askStory)
	again := read(t, f.Client, "again")
	again.words(1)
	w.signal(os.Interrupt)
	w.await(w.err, "helix: stopping")
	w.signal(os.Interrupt)
	if code := w.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, w.err)
	}
	setPace(t, f.dir, "1s", "1ms")
	f.worker()
	again.toEnd(f.Client, session.Completed)
	tellsStory(t, f.Client, "again")
}

// Workers take the file's agents when it changes, as servers do.
func TestWorkerReloads(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "1ms")
	w := f.worker()
	first := readFile(t, f.dir)
	path := filepath.Join(f.dir, defaultConfig)
	put(t, path, strings.Replace(first, "  diary:\n", "  dairy:\n", 1))
	w.await(w.err, "config.refused")
	put(t, path, strings.Replace(first, "agents:\n", "agents:\n  newcomer: {description: Is new.}\n", 1))
	for _, p := range []*program{w, f.program} {
		p.await(p.err, "agents=10")
	}
	k := &talkOver{t, f.Client, "new"}
	if _, status := k.say("newcomer", "hello"); status.Status != session.Completed {
		t.Errorf("%+v", status)
	}
	put(t, path, strings.Replace(first, "workerTimeout: 2s", "workerTimeout: 3s", 1)+"cleanup: {every: 1h}\n")
	w.await(w.err, "sections=runtime\n")
	f.await(f.err, `sections="runtime, cleanup"`)
}

// On DBOS, a worker takes turns out of the queue, and when it is killed, the server
// continues them.
func TestWorkerOnDBOS(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "20ms", "runtime: {kind: dbos, leaseTTL: 3s, sweep: 100ms, dbos: {queue: {workerConcurrency: 2}}}\n")
	d := serveDemo(t, dir)
	w := startIn(t, dir, nil, "worker", "--config", defaultConfig, "--data", "data")
	w.await(w.err, "\n  turns:  DBOS in data/helix-dbos.db, from a queue\n")
	var tales []*reading
	for i := range 4 {
		id := fmt.Sprintf("tale-%d", i)
		begin(t, d.Client, "assistant", id, askStory)
		tales = append(tales, read(t, d.Client, id))
	}
	w.await(w.err, "run.taken_over")
	for _, tale := range tales[:2] {
		tale.words(3)
	}
	w.signal(os.Kill)
	w.wait()
	for _, tale := range tales {
		tale.toEnd(d.Client, session.Completed)
		tellsStory(t, d.Client, tale.id)
	}
	d.stop()
}

// What a command resumes on the store is worked on by the workers, not by the
// command, which may end first.
func TestWorkerForACommand(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "1ms")
	w := f.worker()
	k := &talkOver{t, f.Client, "notes"}
	_, status := k.say("assistant", "Forget everything.")
	if len(status.Pending) != 1 {
		t.Fatalf("%+v", status)
	}
	p := startIn(t, f.dir, nil, "submit", "--config", defaultConfig, "--data", f.store, "notes", status.Pending[0].CallID, "--approve", "--resume")
	if code := p.wait(); code != 0 || !strings.Contains(p.out.String(), "It is all forgotten.") {
		t.Errorf("exit code %d\n%s%s", code, p.out, p.err)
	}
	run, err := f.Status(t.Context(), "notes")
	if err != nil || !strings.Contains(w.err.String(), "run="+run.RunID) {
		t.Errorf("the worker has not worked on %s: %v\n%s", run.RunID, err, w.err)
	}
}

func TestWorkerRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args string
		want string
		code int
	}{
		"local":        {"", "with the runtime local, because the server itself runs the turns", exitUsage},
		"local, asked": {"--runtime local", "with the runtime local", exitUsage},
		"no queue":     {"--runtime dbos", "a worker has nothing to do without a queue", exitUsage},
		"memory":       {"--runtime temporal --store memory:", "the store memory: exists only in this process", exitUsage},
		"not working":  {"--runtime temporal --worker=false", "unknown flag: --worker", exitUsage},
		"no Temporal":  {"--runtime temporal --temporal-address 127.0.0.1:1", "cannot reach Temporal at 127.0.0.1:1: ", exitFailure},
		"no namespace": {"--runtime temporal --temporal-namespace none --temporal-address " + testserver.Temporal(t), `no namespace "none"`, exitFailure},
	} {
		dir := t.TempDir()
		p := startIn(t, dir, nil, append([]string{"worker"}, strings.Fields(test.args)...)...)
		code := p.wait()
		if text := p.err.String(); code != test.code || !strings.HasPrefix(text, "helix: ") || !strings.Contains(text, test.want) || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: exit code %d, want %d with %q in one line\n%s", name, code, test.code, test.want, text)
		}
		if _, err := os.Stat(filepath.Join(dir, "helix-data")); err == nil && code == exitUsage {
			t.Errorf("%s: it was refused, and has made a store", name)
		}
	}
}

// Temporal is found where its own programs find it, unless the command line or the
// file says otherwise.
func TestTemporalOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]string{
		"TEMPORAL_ADDRESS=127.0.0.1:2":                                            "cannot reach Temporal at 127.0.0.1:2: ",
		"TEMPORAL_ADDRESS=" + testserver.Temporal(t) + " TEMPORAL_NAMESPACE=none": `no namespace "none" in Temporal at `,
		"TEMPORAL_TLS_CLIENT_CERT_PATH=none.pem":                                  "read Temporal's settings from the environment: ",
	} {
		p := startIn(t, t.TempDir(), strings.Fields(env), "worker", "--runtime", "temporal")
		if code := p.wait(); code != exitFailure || !strings.Contains(p.err.String(), want) {
			t.Errorf("%s: exit code %d\n%s", env, code, p.err)
		}
	}
}
