package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
	api "github.com/helixagents/helix/server"
	"github.com/helixagents/helix/session"
)

// The load of a busy server: how many chats run at once, how many tokens each has, and the
// pause between tokens.
const (
	chatsAtOnce = 200
	chatTokens  = 200
	chatPace    = 20 * time.Millisecond
	idleReaders = 1000
)

// talker is a model that sends the current time, so that a reader can measure how long the
// text took to arrive.
type talker struct{ tokens int }

func (t talker) Generate(ctx context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	var text strings.Builder
	err := t.talk(ctx, func(token string) {
		text.WriteString(token)
		emit(llm.Delta{Kind: llm.DeltaText, Text: token})
	})
	return &llm.Response{Parts: []session.Part{session.Text(text.String())}, Finish: llm.FinishStop}, err
}

func (t talker) talk(ctx context.Context, say func(token string)) error {
	ticker := time.NewTicker(chatPace)
	defer ticker.Stop()
	for i := range t.tokens {
		if i > 0 {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		say(strconv.FormatInt(time.Now().UnixNano(), 10) + " ")
	}
	return nil
}

// ServeHTTP is the floor of a chat: it sends what the model says, as it says it, and
// stores nothing.
func (t talker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	err := t.talk(r.Context(), func(token string) {
		_, _ = fmt.Fprintf(w, "data: {\"type\":\"text-delta\",\"delta\":%q}\n\n", token) // a reader that has left ends the request
		_ = out.Flush()
	})
	if err == nil {
		_, _ = io.WriteString(w, "data: {\"type\":\"finish\"}\n\n")
	}
}

// thinker is a model that replies when a channel is closed.
type thinker chan struct{}

func (t thinker) Generate(ctx context.Context, _ *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	select {
	case <-t:
		return &llm.Response{Parts: []session.Part{session.Text("Well.")}, Finish: llm.FinishStop}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// chats measures how much later than the model said it a browser has a token, while
// many chat, and what an open stream costs.
func chats(ctx context.Context, k kind, quick bool) ([]row, error) {
	atOnce, tokens := chatsAtOnce, chatTokens
	if quick {
		atOnce, tokens = 50, 50
	}
	var took, floors talked
	var perStream float64
	err := k.onRuntime(ctx, func(rt *local.Runtime, s *site) error {
		unbounded := api.Limits{RunsPerUser: -1}
		return serving(rt, s, unbounded, &helix.Agent{Name: "talker", Model: talker{tokens}}, func(addr string) (err error) {
			if took, err = talks(ctx, addr, atOnce, tokens); err != nil {
				return err
			}
			perStream, err = idle(ctx, rt, addr)
			return err
		})
	})
	if err == nil {
		floors, err = bareTalks(ctx, atOnce, tokens)
	}
	rows := []row{}
	for _, p := range []float64{50, 99} {
		r := row{Bench: "chats", Store: k.name, Runtime: "local", N: atOnce, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(took.all, p)}
		rows = append(rows, r.with(percentile(floors.all, p)))
	}
	first := row{Bench: "chats-first", Store: k.name, Runtime: "local", N: atOnce, Unit: "µs p50", Value: percentile(took.first, 50)}
	return append(rows, first.with(percentile(floors.first, 50)),
		row{Bench: "chats-idle", Store: k.name, Runtime: "local", N: idleReaders, Unit: "KiB/stream", Value: perStream / 1024}), err
}

// firstTokens measures how much later than the model said it a browser has the first
// token, in one chat after the other.
func firstTokens(ctx context.Context, k kind, quick bool) ([]row, error) {
	n := 100
	if quick {
		n = 20
	}
	const tokens = 2
	var took, floors talked
	one := func(all *talked, talk func(i int) (talked, error)) error {
		for i := range n {
			mine, err := talk(i)
			if err != nil {
				return err
			}
			all.first = append(all.first, mine.first...)
		}
		return nil
	}
	err := k.onRuntime(ctx, func(rt *local.Runtime, s *site) error {
		return serving(rt, s, api.Limits{}, &helix.Agent{Name: "talker", Model: talker{tokens}}, func(addr string) error {
			return one(&took, func(i int) (talked, error) {
				return talk(ctx, http.DefaultClient, addr, fmt.Sprintf("first-%d", i), tokens)
			})
		})
	})
	if err == nil {
		err = one(&floors, func(int) (talked, error) { return bareTalks(ctx, 1, tokens) })
	}
	r := row{Bench: "first-token", Store: k.name, Runtime: "local", N: 1, Unit: "µs p50", Value: percentile(took.first, 50)}
	return []row{r.with(percentile(floors.first, 50))}, err
}

// talked is how late tokens were: all of them, and the first of each chat.
type talked struct{ all, first []time.Duration }

// talks chats n times at once.
func talks(ctx context.Context, addr string, n, tokens int) (took talked, err error) {
	var mu sync.Mutex
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	defer client.CloseIdleConnections()
	err = each(n, func(i int) error {
		mine, err := talk(ctx, client, addr, fmt.Sprintf("chat-%d", i), tokens)
		mu.Lock()
		defer mu.Unlock()
		took.all, took.first = append(took.all, mine.all...), append(took.first, mine.first...)
		return err
	})
	return took, err
}

func talk(ctx context.Context, client *http.Client, addr, id string, tokens int) (talked, error) {
	all, err := listen(ctx, client, addr, id, tokens)
	return talked{all, all[:min(1, len(all))]}, err
}

// bareTalks does the same with the floor.
func bareTalks(ctx context.Context, n, tokens int) (took talked, err error) {
	server := httptest.NewServer(talker{tokens})
	defer server.Close()
	return talks(ctx, strings.TrimPrefix(server.URL, "http://"), n, tokens)
}

// prompt is a model that answers at once.
type prompt struct{}

func (prompt) Generate(_ context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	emit(llm.Delta{Kind: llm.DeltaText, Text: "Hi."})
	return &llm.Response{Parts: []session.Part{session.Text("Hi.")}, Finish: llm.FinishStop}, nil
}

// chatStarts measures how long it takes from a user's message, in a new chat, to the
// first byte of the answer, with all limits as they are by default.
func chatStarts(ctx context.Context, k kind, quick bool) ([]row, error) {
	n := 2000
	if quick {
		n = 400
	}
	var took []time.Duration
	err := k.onRuntime(ctx, func(rt *local.Runtime, s *site) error {
		return serving(rt, s, api.Limits{}, &helix.Agent{Name: "prompt", Model: prompt{}}, func(addr string) error {
			client := &http.Client{}
			defer client.CloseIdleConnections()
			for i := range n {
				body := fmt.Sprintf(`{"id":"start-%d","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"Hi!"}]}]}`, i)
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/chat", strings.NewReader(body))
				if err != nil {
					return err
				}
				request.Header.Set("Content-Type", "application/json")
				began := time.Now()
				response, err := client.Do(request)
				if err != nil {
					return err
				}
				_, err = response.Body.Read(make([]byte, 1))
				took = append(took, time.Since(began))
				_, rest := io.Copy(io.Discard, response.Body)
				if err = errors.Join(err, rest, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
					return fmt.Errorf("chat %d: %s: %w", i, response.Status, err)
				}
			}
			return nil
		})
	})
	return []row{{Bench: "chat-start", Store: k.name, Runtime: "local", N: n, Unit: "µs p50", Value: percentile(took, 50)}}, err
}

// serving calls do while a server with an agent listens.
func serving(rt *local.Runtime, s *site, limits api.Limits, agent *helix.Agent, do func(addr string) error) error {
	handler, err := api.New(api.Config{
		Executor: rt, Backend: s.Backend, Agents: func() []*helix.Agent { return []*helix.Agent{agent} },
		AllowUnauthenticated: true, Logger: slog.New(slog.DiscardHandler), Limits: limits, RateLimit: api.RateLimit{PerSecond: -1},
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := api.HTTPServer("", handler)
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	err = do(listener.Addr().String())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, handler.Shutdown(ctx), web.Shutdown(ctx))
	if failure := <-served; !errors.Is(failure, http.ErrServerClosed) {
		err = errors.Join(err, failure)
	}
	return err
}

// listen chats once and returns how late each token was.
func listen(ctx context.Context, client *http.Client, addr, id string, tokens int) ([]time.Duration, error) {
	body := fmt.Sprintf(`{"id":%q,"trigger":"submit-message","messages":[{"id":"m-%s","role":"user","parts":[{"type":"text","text":"Hi!"}]}]}`, id, id)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/chat", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return nil, fmt.Errorf("%s: %s: %s", id, response.Status, said)
	}
	var took []time.Duration
	finished := false
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: {"))
		if !ok {
			continue
		}
		var chunk struct{ Type, Delta string }
		if err := json.Unmarshal(append([]byte("{"), data...), &chunk); err != nil {
			return took, err
		}
		finished = finished || chunk.Type == "finish"
		if chunk.Type != "text-delta" {
			continue
		}
		for token := range strings.FieldsSeq(chunk.Delta) {
			said, err := strconv.ParseInt(token, 10, 64)
			if err != nil {
				return took, err
			}
			took = append(took, time.Since(time.Unix(0, said)))
		}
	}
	if !finished || len(took) != tokens {
		return took, fmt.Errorf("%s: %d of %d tokens, finished: %t", id, len(took), tokens, finished)
	}
	return took, nil
}

// idle opens streams on which nothing happens and returns the bytes that one takes.
// The clients are bare connections, so that the server is most of it.
func idle(ctx context.Context, rt *local.Runtime, addr string) (float64, error) {
	thinks := make(thinker)
	run, err := rt.Execute(ctx, &helix.Agent{Name: "thinker", Model: thinks}, helix.Input{SessionID: "idle", Message: helix.UserText("Hm?")})
	if err != nil {
		return 0, err
	}
	before := inUse()
	conns := make([]net.Conn, 0, idleReaders)
	for range idleReaders {
		c, dialled := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err = dialled; err != nil {
			break
		}
		conns = append(conns, c)
		if _, err = io.WriteString(c, "GET /sse?sessionId=idle HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			break
		}
		if _, err = c.Read(make([]byte, 1)); err != nil {
			break
		}
	}
	after := inUse()
	for _, c := range conns {
		_ = c.Close()
	}
	close(thinks)
	_, ended := run.Result(ctx)
	return (after - before) / idleReaders, errors.Join(err, ended)
}

// inUse is what the process uses now.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}
