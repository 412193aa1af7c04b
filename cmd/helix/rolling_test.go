package main

import (
	"archive/tar"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// release is the commit of the program that this one replaces: both run side by side
// during a deploy.
const release = "bdb7374dfc91191ab0a323082930b26724784b10"

// buildRelease builds the program of the release from this repository's own history.
func buildRelease(t *testing.T) (file string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", release+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: THE DEPLOY IS NOT TESTED. The release %s is not in this clone, which may be a shallow one "+
			"(git fetch --unshallow): %v: %s", release, err, out)
	}
	dir := t.TempDir()
	top, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive := exec.CommandContext(t.Context(), "git", "archive", "--format=tar", release)
	archive.Dir = strings.TrimSpace(string(top))
	files, err := archive.Output()
	if err != nil {
		t.Fatalf("git archive: %v", err)
	}
	if err := unpack(files, dir); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "helix-of-the-release")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", file, "./cmd/helix")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the release: %v\n%s", err, out)
	}
	return file
}

func unpack(archive []byte, dir string) error {
	for files := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o700)
		case tar.TypeReg:
			var body []byte
			if body, err = io.ReadAll(files); err == nil {
				err = os.WriteFile(path, body, 0o600)
			}
		}
		if err != nil {
			return err
		}
	}
}

// rollingConfig has a teller that is slow enough for readers to keep up word by word,
// and a baker, all of whose steps have effects, on an oven.
const rollingConfig = `version: 1
models:
  default: {model: demo, pace: 20ms}
  quick: {model: demo, pace: 2ms}
  slow: {model: demo, pace: 150ms}
runtime: {leaseTTL: 2s, sweep: 100ms}
agents:
  assistant: {instructions: Help., tools: [clock, calculate, remember, recall], state: {notes: []}}
  baker: {instructions: Bake., model: quick, tools: [work]}
  teller: {instructions: Tell., model: slow}
  host: {instructions: Look after the diary., companions: [{agent: diary, mode: blocking}]}
  diary: {description: Writes down what it is told., instructions: You are a diary., tools: [remember, recall], state: {notes: []}}
tools:
  clock: {type: builtin, builtin: time}
  work:
    type: http
    method: POST
    url: OVEN
    allowPrivate: true
    description: Do a task that takes some seconds.
    input: {type: object, required: [task], properties: {task: {type: string}, seconds: {type: number}}}
  calculate: {type: builtin, builtin: calculator}
  remember: {type: builtin, builtin: remember}
  recall: {type: builtin, builtin: recall}
`

// TestRollingDeploy runs the program of the last release and this one on one store,
// has conversations through both, kills both again and again, and requires that no
// stream has a gap or a repetition, that readers on each side follow what the other
// writes, and that everything that a client was told is there.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	if !testshare.Soak() {
		t.Skip("SKIPPED: it builds the program of the last release; make soak runs it")
	}
	old := buildRelease(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range testbackend.Shared() {
		batches := map[string]func(*rolling) []written{
			"sqlite": batchesInSQLite, "postgres": batchesInPostgres, "redis": batchesInRedis,
		}[kind.Name]
		if batches == nil {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := &rolling{t: t, address: kind.Address(t), dir: dir, fired: map[string]int{}}
			if kind.Name == "sqlite" { // the old program creates the tables, and this one migrates them under it
				r.address = "sqlite:" + filepath.Join(t.TempDir(), "helix.db")
			}
			oven := httptest.NewServer(http.HandlerFunc(r.oven))
			defer oven.Close()
			put(t, filepath.Join(dir, defaultConfig), strings.Replace(rollingConfig, "OVEN", oven.URL, 1))
			r.seats = [2]*seat{{name: "old", file: old}, {name: "new", file: self}}
			for _, p := range r.seats {
				r.start(p)
			}
			r.testFollowing()
			r.testKills()
			r.testGoBack()
			r.testFirstBlob()
			r.verify(batches(r))
		})
	}
}

// rolling is a deploy in progress.
type rolling struct {
	t       *testing.T
	address string
	dir     string
	seats   [2]*seat
	chats   []*conversation
	arrived atomic.Int64 // chunks that readers have seen

	mu    sync.Mutex
	fired map[string]int // how often the oven was used, by call
}

// oven is what the baker works with. It takes long enough for the server to be killed
// meanwhile.
func (r *rolling) oven(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	r.fired[request.Header.Get("Idempotency-Key")]++
	r.mu.Unlock()
	select {
	case <-request.Context().Done():
	case <-time.After(100 * time.Millisecond): // waits: see above
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"task":"done"}`)
}

// seat is where a server of one version is found, however often it is started
// again.
type seat struct {
	name, file string
	addr       string
	server     *daemon
	client     *client.Client // waits for the server
	hasty      *client.Client // does not
	kills      int
}

func (r *rolling) start(p *seat) {
	r.t.Helper()
	args := []string{"--config", defaultConfig, "--store", r.address, "--allow-unauthenticated"}
	if p.addr != "" {
		args = append(args, "--addr", p.addr)
	}
	p.server = serveOther(r.t, p.file, r.dir, args...)
	if p.client == nil {
		p.addr, p.client = p.server.addr, p.server.Client
		var err error
		if p.hasty, err = client.New(client.Config{URL: p.server.url(), Attempts: 2, Backoff: 20 * time.Millisecond}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// testFollowing has each side read what the other writes, word by word. A reader
// whose notifications are lost polls, and sees several words at once: most have to
// arrive before the writer's own reader has the next one.
func (r *rolling) testFollowing() {
	r.t.Helper()
	for i, writer := range r.seats {
		reader := r.seats[1-i]
		id := "told-by-" + writer.name
		begin(r.t, writer.client, "teller", id, askStory)
		ctx, cancel := context.WithTimeout(r.t.Context(), eventually.Patience)
		type arrival struct {
			away bool // at the reader on the other side
			item stream.Item
			err  error
		}
		arrivals := make(chan arrival)
		var reading sync.WaitGroup
		for _, away := range []bool{false, true} {
			c := writer.client
			if away {
				c = reader.client
			}
			reading.Go(func() {
				for item, err := range c.Read(ctx, id, 0) {
					arrivals <- arrival{away, item, err}
				}
			})
		}
		go func() {
			reading.Wait()
			close(arrivals)
		}()
		var here, there int64 // sequences that have arrived
		words, intime := 0, 0
		for a := range arrivals {
			switch {
			case a.err != nil:
				r.t.Errorf("%s: %v", id, a.err)
			case a.item.Chunk == nil:
			case a.away:
				there = a.item.Sequence
			default:
				if a.item.Chunk.Kind == stream.TextDelta {
					words++
					if there >= here {
						intime++
					}
				}
				here = a.item.Sequence
			}
		}
		cancel()
		if here != there || here == 0 {
			r.t.Errorf("%s: the readers came to %d and %d", id, here, there)
		}
		if words < 50 || intime < words*6/10 {
			r.t.Errorf("the reader of the %s program saw %d of %d words of the %s one in time", reader.name, intime, words, writer.name)
		}
		r.t.Logf("the reader of the %s program saw %d of %d words of the %s one before the next was written", reader.name, intime, words, writer.name)
	}
}

// testGoBack kills both programs in the middle of replies and starts the old one only, as
// somebody does who goes back after a crash: it continues what the new one has begun, and nothing
// has to be done for that.
func (r *rolling) testGoBack() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), eventually.Patience)
	defer cancel()
	old, young := r.seats[0], r.seats[1]
	runs := map[string]string{} // by session
	for i := range 4 {
		id := fmt.Sprint("back-", i)
		runs[id] = begin(r.t, young.client, "teller", id, askStory).RunID
	}
	for id := range runs {
		words := 0
		for item, err := range young.client.Read(ctx, id, 0) {
			if err != nil {
				r.t.Fatal(err)
			}
			if item.Chunk != nil && item.Chunk.Kind == stream.TextDelta {
				words++
			}
			if words == 3 {
				break
			}
		}
	}
	young.server.kill()
	old.server.kill()
	r.start(old)
	db, err := backend.Open(r.address, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	for id, runID := range runs {
		for _, err := range old.client.ReadRun(ctx, id, runID, 0) {
			if err != nil {
				r.t.Errorf("%s: read at the old server: %v", id, err)
			}
		}
		run, err := db.Sessions().Run(ctx, id, runID)
		if err != nil || run.Status != session.RunCompleted || run.Attempts != 1 {
			r.t.Errorf("%s: the old program left the run as %+v, %v", id, run, err)
		}
	}
	r.start(young)
}

// testFirstBlob puts the first blob of the store, which the old program would neither
// clone nor drop: it stops using the store, says why, and the new one goes on.
func (r *rolling) testFirstBlob() {
	r.t.Helper()
	db, err := backend.Open(r.address, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), eventually.Patience)
	defer cancel()
	if _, err := db.Blobs().Put(ctx, &blob.Put{SessionID: r.chats[0].id, Data: []byte("kept")}); err != nil {
		r.t.Fatal(err)
	}
	start := func(p *seat, i int) error {
		_, err := p.hasty.Start(ctx, wire.Start{SessionID: fmt.Sprintf("after-blobs-%s-%d", p.name, i), AgentType: "assistant", Message: wire.Text("Hello!")})
		return err
	}
	old, young := r.seats[0], r.seats[1]
	for i := 0; ; i++ {
		err := start(old, i)
		if err != nil && strings.Contains(err.Error(), "must be updated") {
			break
		}
		if ctx.Err() != nil {
			r.t.Fatalf("the old program goes on in a store with blobs: %v", err)
		}
		time.Sleep(100 * time.Millisecond) // waits: it notices when it next takes or renews a lease
	}
	if err := start(young, 0); err != nil {
		r.t.Errorf("the new program in a store with blobs: %v", err)
	}
}

// conversation is a client that talks to an agent through both servers, with a
// reader on each side.
type conversation struct {
	r         *rolling
	id, agent string
	told      []saying
	seen      [2]map[int64]json.RawMessage // what the readers got, by sequence
	ended     [2]map[string]bool           // the runs whose end they got
	begun     [2]chan string               // receives the run of each turn, and has room for more than there can be

	mu   sync.Mutex
	hits int // kills during the turn; -1 between turns
}

// saying is a message whose run a client was told of.
type saying struct{ words, runID string }

func (r *rolling) newConversation(i int) *conversation {
	// The host's companion writes to the same stream.
	agents := []string{"assistant", "assistant", "baker", "host"}
	c := &conversation{r: r, id: fmt.Sprintf("chat-%d", i), agent: agents[i%len(agents)], hits: -1}
	for side := range c.seen {
		c.seen[side], c.begun[side] = map[int64]json.RawMessage{}, make(chan string, 10_000)
		c.ended[side] = map[string]bool{}
	}
	return c
}

// words returns what the client says in a turn.
func (c *conversation) words(turn int) string {
	note := fmt.Sprintf("that ship %d of %s has passed.", turn, c.id)
	switch {
	case c.agent == "baker":
		return fmt.Sprintf("Bake loaf %d of %s.", turn, c.id)
	case c.agent == "host" && turn%2 == 0:
		return "Tell the diary to remember " + note
	case c.agent == "host":
		return fmt.Sprintf("Ask the diary to remember the tale %d of %s.", turn, c.id)
	case turn%3 == 1:
		return "Remember " + note
	case turn%3 == 2:
		return fmt.Sprintf("What time is it, and what is %d * 7?", turn)
	}
	return fmt.Sprintf("Tell me a story, number %d for %s.", turn, c.id)
}

// talk has the conversation until it is enough.
func (c *conversation) talk(ctx context.Context, enough <-chan struct{}) error {
	for turn := 0; ; turn++ {
		select {
		case <-enough:
			return nil
		default:
		}
		words := c.words(turn)
		c.setHits(0)
		started, err := c.say(ctx, turn, words)
		if err != nil {
			return fmt.Errorf("%s: say %q: %w", c.id, words, err)
		}
		c.told = append(c.told, saying{words, started.RunID})
		for _, begun := range c.begun {
			begun <- started.RunID
		}
		if err := c.await(ctx, started.RunID); err != nil {
			return fmt.Errorf("%s: read the run of %q: %w", c.id, words, err)
		}
		c.setHits(-1)
	}
}

// await reads a run to its end, at any of the servers that is there.
func (c *conversation) await(ctx context.Context, runID string) error {
	for side := rand.IntN(2); ; side = 1 - side {
		var failed error
		for _, err := range c.r.seats[side].hasty.ReadRun(ctx, c.id, runID, 0) {
			failed = err
		}
		if failed == nil || ctx.Err() != nil || !isAway(failed) {
			return failed
		}
	}
}

// isAway reports whether a server could not be reached, or its store could not.
func isAway(err error) bool {
	return session.IsRetryable(err) || errors.Is(err, session.ErrUnavailable)
}

// say says something to any of the servers until one has heard it. The request's id
// makes it the same request.
func (c *conversation) say(ctx context.Context, turn int, words string) (*wire.Started, error) {
	for side := rand.IntN(2); ; side = 1 - side {
		started, err := c.r.seats[side].client.Start(ctx, wire.Start{
			SessionID: c.id, AgentType: c.agent, Message: wire.Text(words), RequestID: fmt.Sprint("turn-", turn),
		})
		if err == nil || !isAway(err) {
			return started, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond): // waits: a server that was killed comes back in its own time
		}
	}
}

func (c *conversation) setHits(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits = n
}

// follow reads the stream on one side, turn by turn, while it is written.
func (c *conversation) follow(ctx context.Context, side int) error {
	at := 0 // the last sequence
	for runID := range c.begun[side] {
		for {
			ended, err := c.read(ctx, side, &at, runID)
			if err != nil {
				return fmt.Errorf("%s: read at the %s server after %d: %w", c.id, c.r.seats[side].name, at, err)
			}
			if ended {
				break
			}
			// The server was killed after it had stored the run and before it opened the
			// stream again; who takes the run over does that.
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond): // waits: between two tries
			}
		}
	}
	return nil
}

// read reads to the end of the stream, and reports whether that has the end of a run.
func (c *conversation) read(ctx context.Context, side int, at *int, runID string) (ended bool, err error) {
	for item, err := range c.r.seats[side].client.Read(ctx, c.id, int64(*at)) {
		if err != nil {
			return false, err
		}
		if item.Chunk == nil {
			continue
		}
		if item.Sequence != int64(*at)+1 {
			return false, fmt.Errorf("the sequence is %d", item.Sequence)
		}
		*at++
		raw, err := json.Marshal(item.Chunk)
		if err != nil {
			return false, err
		}
		c.seen[side][item.Sequence] = raw
		c.r.arrived.Add(1)
		if item.Chunk.Kind == stream.RunCompleted && item.Chunk.AgentID == c.id {
			c.ended[side][item.Chunk.RunID] = true
		}
	}
	return c.ended[side][runID], nil
}

// testKills has conversations while the servers are killed by turns.
func (r *rolling) testKills() {
	r.t.Helper()
	const chats, kills = 8, 16
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute) // waits: a soak has more to do than others, and this ends it
	defer cancel()
	failed := make(chan error, 3*chats)
	enough := make(chan struct{})
	var talking, reading sync.WaitGroup
	for i := range chats {
		c := r.newConversation(i)
		r.chats = append(r.chats, c)
		talking.Go(func() {
			defer close(c.begun[0])
			defer close(c.begun[1])
			if err := c.talk(ctx, enough); err != nil {
				failed <- err
				cancel()
			}
		})
		for side := range r.seats {
			reading.Go(func() {
				if err := c.follow(ctx, side); err != nil {
					failed <- err
					cancel()
				}
			})
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		talking.Wait()
		reading.Wait()
	}()
	for i := range kills {
		p := r.seats[i%2]
		if !r.progress(ctx, done, 20+rand.Int64N(200), true) {
			break
		}
		r.hit()
		p.server.kill()
		p.kills++
		if i%4 >= 2 { // the other one has to take over
			r.progress(ctx, done, 100, false)
		}
		r.start(p)
	}
	close(enough)
	<-done
	close(failed)
	for err := range failed {
		if !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	}
	for _, p := range r.seats {
		if p.kills < kills/2 {
			r.t.Errorf("the %s program was killed %d times only: the test proves little", p.name, p.kills)
		}
		r.t.Logf("the %s program was killed %d times", p.name, p.kills)
	}
	if r.t.Failed() {
		for _, p := range r.seats {
			r.t.Logf("the log of the %s program:\n%s", p.name, p.server.err)
		}
		r.t.FailNow()
	}
}

// progress waits until so many more chunks have been read, and with spare also until
// no turn has been hit twice: one that is cut off too often fails, and rightly so. It
// returns false if the conversations have ended.
func (r *rolling) progress(ctx context.Context, done <-chan struct{}, chunks int64, spare bool) bool {
	target := r.arrived.Load() + chunks
	for r.arrived.Load() < target || spare && slices.ContainsFunc(r.chats, func(c *conversation) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.hits >= 2
	}) {
		select {
		case <-done:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(2 * time.Millisecond): // waits: where the servers are then is anybody's guess
		}
	}
	return true
}

// hit notes which turns a kill may have cut off.
func (r *rolling) hit() {
	for _, c := range r.chats {
		c.mu.Lock()
		if c.hits >= 0 {
			c.hits++
		}
		c.mu.Unlock()
	}
}

// verify compares what is stored with what clients were told and shown.
func (r *rolling) verify(all []written) {
	r.t.Helper()
	for _, p := range r.seats {
		p.server.stop()
	}
	db, err := backend.Open(r.address, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	chunks, discarded, unknown := 0, 0, 0
	for _, c := range r.chats {
		n, d, u := c.verify(db)
		chunks, discarded, unknown = chunks+n, discarded+d, unknown+u
	}
	if discarded == 0 {
		r.t.Error("no kill cut off a reply: the test proves little")
	}
	for call, times := range r.fired {
		if call == "" || times != 1 {
			r.t.Errorf("the call %q was made %d times", call, times)
		}
	}
	epochs := verifyNumbers(r.t, all)
	r.t.Logf("%d conversations, %d chunks of %d producers' epochs; %d replies were cut off and discarded, %d of %d calls answered as unknown",
		len(r.chats), chunks, epochs, discarded, unknown, len(r.fired))
}

func (c *conversation) verify(db store.Backend) (n, discarded, unknown int) {
	t, ctx := c.r.t, c.r.t.Context()
	t.Helper()
	var chunks []stream.Chunk
	for item, err := range db.Streams().Read(ctx, c.id, 0, false) {
		if err != nil {
			t.Fatalf("%s: %v", c.id, err)
		}
		if item.Chunk == nil {
			continue
		}
		chunks = append(chunks, *item.Chunk)
		if item.Sequence != int64(len(chunks)) {
			t.Fatalf("%s: sequence %d is the %dth", c.id, item.Sequence, len(chunks))
		}
		raw, err := json.Marshal(item.Chunk)
		if err != nil {
			t.Fatal(err)
		}
		for side, p := range c.r.seats {
			if shown := c.seen[side][item.Sequence]; !bytes.Equal(shown, raw) {
				t.Errorf("%s: %d is stored as %s, and the reader at the %s server got %s", c.id, item.Sequence, raw, p.name, shown)
			}
		}
		if item.Chunk.Kind == stream.StepDiscarded {
			discarded++
		}
	}
	for side, p := range c.r.seats {
		if len(c.seen[side]) != len(chunks) {
			t.Errorf("%s: %d chunks are stored, and the reader at the %s server got %d", c.id, len(chunks), p.name, len(c.seen[side]))
		}
	}
	messages, err := db.Sessions().AllMessages(ctx, c.id)
	if err != nil {
		t.Fatal(err)
	}
	if got, stands := transcript(stream.Fold(c.id, chunks)), transcript(messages); got != stands {
		t.Errorf("%s: the stream tells\n%s\nand the store holds\n%s", c.id, got, stands)
	}
	c.verifyRuns(db)
	return len(chunks), discarded, c.verifyMessages(messages)
}

// verifyMessages requires what was said, once and in order, each with a reply, and
// returns how many calls were cut off.
func (c *conversation) verifyMessages(messages []session.Message) (unknown int) {
	t := c.r.t
	t.Helper()
	valid, err := session.NewTranscript(messages)
	if err == nil {
		err = valid.Sendable()
	}
	if err != nil {
		t.Errorf("%s: the transcript is invalid: %v", c.id, err)
	}
	var said, replies []string
	for i := range messages {
		switch m := &messages[i]; m.Role {
		case session.RoleUser:
			said, replies = append(said, m.Content()), append(replies, "")
		case session.RoleAssistant:
			replies[len(replies)-1] = m.Content()
		case session.RoleTool:
			if e := m.Parts[0].Error; e != nil {
				if e.Code != session.CodeToolOutcome {
					t.Errorf("%s: a call failed: %v", c.id, e)
				}
				unknown++
			}
		}
	}
	var told []string
	for _, s := range c.told {
		told = append(told, s.words)
	}
	if !slices.Equal(said, told) {
		t.Errorf("%s: the client said %q, the store holds %q", c.id, told, said)
	}
	for i, reply := range replies {
		if reply == "" || strings.Contains(said[i], "a story") && !strings.HasPrefix(reply, story) {
			t.Errorf("%s: the reply to %q is %q", c.id, said[i], reply)
		}
	}
	return unknown
}

// verifyRuns requires the runs that the client was told of, and no others, and that
// no note was taken twice.
func (c *conversation) verifyRuns(db store.Backend) {
	t, ctx := c.r.t, c.r.t.Context()
	t.Helper()
	runs, err := db.Sessions().Runs(ctx, c.id, session.PageRequest{Limit: 2 * len(c.told)})
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]session.RunStatus{}
	for i := range runs.Items {
		status[runs.Items[i].ID] = runs.Items[i].Status
	}
	if len(status) != len(c.told) {
		t.Errorf("%s has %d runs, its client was told of %d", c.id, len(status), len(c.told))
	}
	for _, s := range c.told {
		if status[s.runID] != session.RunCompleted {
			t.Errorf("%s: the run of %q is %q", c.id, s.words, status[s.runID])
		}
	}
	ids := []string{c.id}
	children, err := db.Sessions().Children(ctx, c.id)
	if err != nil {
		t.Fatal(err)
	}
	for i := range children {
		if !slices.Contains(ids, children[i].SessionID) {
			ids = append(ids, children[i].SessionID)
		}
	}
	for _, id := range ids {
		state, err := db.Sessions().Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		raw, taken := state.Custom.Get("notes"), map[string]int{}
		var notes []json.RawMessage
		if err := json.Unmarshal(raw, &notes); raw != nil && err != nil {
			t.Fatalf("%s: %s: %v", id, raw, err)
		}
		for _, note := range notes {
			if taken[string(note)]++; taken[string(note)] > 1 {
				t.Errorf("%s: the note %s was taken twice", id, note)
			}
		}
	}
}

// written is a batch of a stream as the store keeps it: from the producer's number
// first to the one before next.
type written struct {
	stream, producer string
	epoch            int64
	sequence         int64 // of its first chunk
	first, next      int64
}

// verifyNumbers requires that each producer's chunks are in their stream once: under
// an epoch its numbers go on without a gap, and epochs only grow. It returns how many
// epochs there were.
func verifyNumbers(t *testing.T, all []written) (epochs int) {
	t.Helper()
	if len(all) == 0 {
		t.Error("no batches were found")
	}
	slices.SortStableFunc(all, func(a, b written) int {
		if c := strings.Compare(a.stream, b.stream); c != 0 {
			return c
		}
		return int(a.sequence - b.sequence)
	})
	type producer struct{ stream, name string }
	latest := map[producer]written{}
	for _, w := range all {
		key := producer{w.stream, w.producer}
		before, known := latest[key]
		switch {
		case !known || w.epoch > before.epoch:
			epochs++
			if w.first > 1 {
				t.Errorf("stream %s: under epoch %d %s begins with %d", w.stream, w.epoch, w.producer, w.first)
			}
		case w.epoch < before.epoch:
			t.Errorf("stream %s: %s wrote under epoch %d after %d", w.stream, w.producer, w.epoch, before.epoch)
		case w.first != before.next:
			t.Errorf("stream %s: under epoch %d %s wrote number %d after %d", w.stream, w.epoch, w.producer, w.first, before.next-1)
		}
		latest[key] = w
	}
	return epochs
}

func batchesInSQLite(r *rolling) (all []written) {
	r.t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(r.address, "sqlite:"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(r.t.Context(), `
SELECT s.stream_id, b.producer, b.epoch, b.key & 4294967295, b.next - (b.last_sequence - (b.key & 4294967295) + 1), b.next
FROM stream_batches b JOIN streams s ON s.number = b.key >> 32`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var w written
		if err := rows.Scan(&w.stream, &w.producer, &w.epoch, &w.sequence, &w.first, &w.next); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, w)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return all
}

func batchesInPostgres(r *rolling) (all []written) {
	r.t.Helper()
	address, schema := backend.Schema(r.address)
	u, err := url.Parse(address)
	if err != nil {
		r.t.Fatal(err)
	}
	query := u.Query()
	query.Del("pool_max_conns")
	u.RawQuery = query.Encode()
	conn, err := pgx.Connect(r.t.Context(), u.String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(r.t.Context())
	rows, err := conn.Query(r.t.Context(), fmt.Sprintf(`
SELECT s.stream_id, b.producer, b.epoch, b.first_sequence, b.next - (b.last_sequence - b.first_sequence + 1), b.next
FROM %[1]s.stream_batches b JOIN %[1]s.streams s ON s.number = b.stream`, schema))
	if err != nil {
		r.t.Fatal(err)
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w written, err error) {
		err = row.Scan(&w.stream, &w.producer, &w.epoch, &w.sequence, &w.first, &w.next)
		return w, err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func batchesInRedis(r *rolling) (all []written) {
	r.t.Helper()
	u, err := url.Parse(r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	rdb := goredis.NewClient(&goredis.Options{Addr: u.Host})
	defer rdb.Close()
	for _, c := range r.chats {
		keys, err := rdb.Keys(r.t.Context(), u.Query().Get("prefix")+":{*"+c.id+"}:X").Result()
		if err != nil || len(keys) != 1 {
			r.t.Fatalf("the stream of %s: %q, %v", c.id, keys, err)
		}
		chunks, err := rdb.XRange(r.t.Context(), keys[0], "-", "+").Result()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, chunk := range chunks {
			number := func(text any) int64 {
				n, err := strconv.ParseInt(fmt.Sprint(text), 10, 64)
				if err != nil {
					r.t.Errorf("%s: %+v: %v", c.id, chunk, err)
				}
				return n
			}
			sequence, _, _ := strings.Cut(chunk.ID, "-")
			w := written{
				stream: c.id, producer: fmt.Sprint(chunk.Values["p"]), epoch: number(chunk.Values["e"]),
				sequence: number(sequence), first: number(chunk.Values["n"]),
			}
			w.next = w.first + 1
			all = append(all, w)
		}
	}
	return all
}
