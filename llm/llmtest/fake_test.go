package llmtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// fake is a small provider of the suite's own: its requests are the neutral form,
// its replies are one JSON object per event. Bugs can be planted in it.
type fake struct {
	url, key string
	bug      string
}

// event is a piece of the fake's stream.
type event struct {
	Kind  string // text, think, call, args, usage, ping, done, error
	Text  string
	Index int
	Tool  string
	Usage session.Usage
}

func (f *fake) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	secrets := provider.NewSecrets(f.key)
	if f.bug == "shouts" {
		secrets = nil
	}
	if f.bug == "deaf" {
		ctx = context.WithoutCancel(ctx)
	}
	body, err := f.encode(request)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Key", f.key)
	if f.bug != "drops headers" {
		for name, value := range request.Settings.Headers {
			r.Header.Set(name, value)
		}
	}
	client := provider.Client(nil)
	if f.bug == "follows redirections" {
		client = http.DefaultClient
	}
	answer, err := client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, provider.Broken("fake", err, secrets)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		failure := provider.Failure{Provider: "fake", Status: answer.StatusCode, Header: answer.Header, Body: string(text), Message: string(text)}
		if f.bug == "ignores Retry-After" {
			failure.Header = nil
		}
		return nil, failure.Error(secrets)
	}
	reply := provider.NewReply(emit)
	reply.Model, reply.Finish = AnsweringModel, llm.FinishOther
	err = f.read(answer.Body, reply, secrets)
	if ctx.Err() != nil {
		return reply.Partial(), ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return reply.Response()
}

func (f *fake) read(body io.Reader, reply *provider.Reply, secrets provider.Secrets) error {
	calls := map[int]*provider.Block{}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(strings.TrimRight(lines.Text(), "\r"), "data: ")
		if !ok {
			continue
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			if f.bug == "skips garbage" {
				continue
			}
			if strings.HasSuffix(data, "}") || strings.HasPrefix(data, "<") {
				return provider.Broken("fake", err, secrets)
			}
			break // the event was cut
		}
		switch e.Kind {
		case "text":
			if f.bug == "loses pieces" && strings.Contains(e.Text, "fine") {
				continue
			}
			reply.Say(session.PartText, e.Text)
		case "think":
			reply.Say(session.PartReasoning, e.Text).Keep(provider.Keep("fake", Signature))
		case "call":
			calls[e.Index] = reply.Call(fmt.Sprintf("id%d", e.Index), e.Tool)
		case "args":
			if f.bug == "mixes calls" {
				e.Index = 0
			}
			calls[e.Index].Add(e.Text)
		case "error":
			return (&provider.Failure{Provider: "fake", Type: "overloaded", Message: e.Text}).Error(secrets)
		case "done":
			reply.Finish, reply.Usage = llm.FinishReason(e.Text), e.Usage
			return nil
		}
	}
	if f.bug == "takes any end" {
		reply.Finish = llm.FinishStop
		return nil
	}
	return provider.Stopped("fake")
}

// fakeRequest is what the fake sends.
type fakeRequest struct {
	Messages     []json.RawMessage
	Instructions string
	Tools        []llm.Tool `json:"tools"`
	Choice       llm.ToolChoice
	Settings     llm.Settings
	Cache        llm.Cache
}

func (f *fake) encode(request *llm.Request) ([]byte, error) {
	out := fakeRequest{
		Instructions: request.Instructions, Tools: append([]llm.Tool(nil), request.Tools...),
		Choice: request.ToolChoice, Settings: request.Settings, Cache: request.Settings.Cache,
	}
	out.Settings.ProviderOptions = nil
	if out.Instructions != "" && f.bug == "tells the time" {
		out.Instructions += time.Now().String()
	}
	for i := range out.Tools {
		out.Tools[i].Strict = out.Tools[i].Strict && bytes.Contains(out.Tools[i].Schema, []byte("additionalProperties"))
	}
	var ids provider.CallIDs
	for i := range request.Messages {
		m := request.Messages[i]
		m.Parts = append([]session.Part(nil), m.Parts...)
		if f.bug == "changes messages" {
			request.Messages[i].Parts[0].Text += "!"
		}
		kept := m.Parts[:0]
		for _, part := range m.Parts {
			switch part.Kind {
			case session.PartToolCall:
				if f.bug != "trusts ids" {
					part.ProviderCallID = ids.Call(&part)
				}
				part.Tool = provider.ToolName(part.Tool)
			case session.PartToolResult:
				if f.bug != "trusts ids" {
					part.ProviderCallID = ids.Result(&part)
				}
			case session.PartFile:
				if f.bug == "drops files" {
					continue
				}
			case session.PartReasoning:
				var signature string
				if !provider.Kept(&part, "fake", &signature) {
					continue
				}
			}
			kept = append(kept, part)
		}
		raw, err := session.Encode(session.Message{Role: m.Role, Parts: kept})
		if err != nil {
			return nil, err
		}
		out.Messages = append(out.Messages, raw)
	}
	if f.bug == "numbers messages" {
		out.Messages = append([]json.RawMessage{fmt.Appendf(nil, `{"v":1,"role":"user","parts":[],"step":%d}`, len(out.Messages))}, out.Messages...)
	}
	return f.merge(&out, request.Settings.ProviderOptions)
}

func (f *fake) merge(request *fakeRequest, raw json.RawMessage) ([]byte, error) {
	options, err := provider.Options("fake", raw)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if f.bug != "replaces members" {
		return provider.Body("fake", body, options)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	for _, o := range options {
		members[o.Name] = o.Value
	}
	return json.Marshal(members)
}

func decodeFake(_ string, header http.Header, body []byte) (Sent, error) {
	var in struct {
		fakeRequest
		Messages json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Sent{}, err
	}
	sent := Sent{
		Key: header.Get("X-Key"), Model: AskedModel, Stream: true, Instructions: in.Instructions, Tools: in.Tools, ToolChoice: in.Choice,
		Settings: in.Settings, Transcript: in.Messages, Fixed: []byte(in.Instructions), CachedPrefix: in.Cache.Prefix, CacheTTL: in.Cache.TTL,
	}
	sent.Settings.Headers, sent.Settings.ProviderOptions, sent.Settings.Cache = nil, nil, llm.Cache{}
	if err := json.Unmarshal(body, &sent.Options); err != nil {
		return Sent{}, err
	}
	var messages []session.Message
	if err := json.Unmarshal(in.Messages, &messages); err != nil {
		return Sent{}, err
	}
	last := -1
	for _, m := range messages {
		for _, part := range m.Parts {
			var signature string
			if provider.Kept(&part, "fake", &signature) {
				part.Provider, _ = session.Encode(signature)
			}
			if part.Kind == session.PartToolResult {
				last = len(sent.Parts)
				part.Text = provider.ResultText(&part)
			}
			sent.Parts = append(sent.Parts, SentPart{Role: m.Role, Part: part})
		}
	}
	if in.Cache.LatestTurn && last >= 0 {
		sent.Parts[last].Cached = true
	}
	return sent, nil
}

// record makes the fake's recordings of what the cases ask for.
func recordFake() fstest.MapFS {
	files := fstest.MapFS{}
	write := func(name string, events ...event) {
		var b bytes.Buffer
		for _, e := range events {
			raw, _ := json.Marshal(e)
			fmt.Fprintf(&b, "data: %s\n\n", raw)
		}
		files[name] = &fstest.MapFile{Data: b.Bytes()}
	}
	for name, r := range replies {
		var events []event
		calls := 0
		for i := range r.parts {
			part := &r.parts[i]
			switch part.Kind {
			case session.PartText:
				for _, piece := range strings.SplitAfter(part.Text, " ") {
					events = append(events, event{Kind: "text", Text: piece})
				}
			case session.PartReasoning:
				for _, piece := range strings.SplitAfter(part.Text, ". ") {
					events = append(events, event{Kind: "think", Text: piece})
				}
			case session.PartToolCall:
				half := len(part.Input) / 2
				events = append(
					events, event{Kind: "call", Index: calls, Tool: part.Tool},
					event{Kind: "args", Index: calls, Text: string(part.Input[:half])},
					event{Kind: "args", Index: calls, Text: string(part.Input[half:])},
				)
				calls++
			}
		}
		write(name+".sse", append(events, event{Kind: "done", Text: string(r.finish), Usage: r.usage})...)
	}
	hel := event{Kind: "text", Text: "Hel"}
	write("stopped-stream.sse", hel)
	write("error-mid-stream.sse", hel, event{Kind: "error", Text: "overloaded, {{key}}"})
	write("garbage.sse", hel)
	files["garbage.sse"].Data = append(files["garbage.sse"].Data, "data: <nonsense}\n\n"...)
	write("refused.sse", event{Kind: "done", Text: string(llm.FinishContentFilter)})
	for name, text := range map[string]string{
		"rate-limited": "slow down", "overloaded": "overloaded", "auth": "bad key {{key}}", "context-length": "prompt is too long",
		"bad-request": "no", "model-not-found": "no such model", "server-error": "<html>",
	} {
		files[name+".json"] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func fakeProvider(bug string) Provider {
	return Provider{
		Name:      "fake",
		New:       func(baseURL, key string) llm.Model { return &fake{baseURL, key, bug} },
		Exchanges: recordFake(),
		Decode:    decodeFake,
		Options:   json.RawMessage(`{"effort":"high"}`),
	}
}

func TestFake(t *testing.T) {
	t.Parallel()
	Run(t, fakeProvider(""))
}

// A suite that cannot fail proves nothing: each bug here has to be seen by the
// cases that guard against it.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	for bug, cases := range map[string][]string{
		"shouts":               {"failure/auth", "failure/error-mid-stream"},
		"deaf":                 {"cancel/mid-stream", "cancel/before-answer"},
		"drops headers":        {"together", "request/headers-and-options"},
		"drops files":          {"request/unreadable-file", "request/rich"},
		"replaces members":     {"request/options-are-merged"},
		"follows redirections": {"failure/redirect"},
		"ignores Retry-After":  {"failure/rate-limited"},
		"skips garbage":        {"failure/garbage"},
		"loses pieces":         {"reply/text", "byte-by-byte/text"},
		"mixes calls":          {"reply/tools", "slow/tools"},
		"takes any end":        {"failure/stopped-stream", "cut/text", "cut/tools"},
		"tells the time":       {"request/prefix-is-stable", "request/rich"},
		"changes messages":     {"model"},
		"trusts ids":           {"request/foreign-transcript"},
		"numbers messages":     {"request/prefix-is-stable"},
	} {
		for _, name := range cases {
			t.Run(strings.ReplaceAll(bug, " ", "-")+"/"+name, func(t *testing.T) {
				t.Parallel()
				p := fakeProvider(bug)
				if bug == "deaf" {
					p.patience = time.Second // it never returns
				}
				found := false
				for _, c := range suite() {
					if c.name == name {
						found = true
						if !fails(t, func(t testing.TB) { c.run(t, &p) }) {
							t.Errorf("%s does not see that the model %s", name, bug)
						}
					}
				}
				if !found {
					t.Errorf("there is no case %s", name)
				}
			})
		}
	}
}

// fails runs a case and reports whether it failed.
func fails(t *testing.T, run func(t testing.TB)) bool {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(r)
	}()
	<-done
	return r.failed
}

// recorder is a test whose failure is only noted.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprint(args...)) }
func (r *recorder) Failed() bool                      { return r.failed }

func (r *recorder) Fatalf(format string, args ...any) {
	r.note(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.note(fmt.Sprint(args...))
	runtime.Goexit()
}

func (r *recorder) note(text string) {
	r.failed = true
	r.Logf("seen: %.300s", text)
}

// unclassified fails with an error of its own.
type unclassified struct{}

func (unclassified) Generate(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
	return nil, errors.New("oops")
}

func TestModelSuiteSeesUnclassifiedErrors(t *testing.T) {
	t.Parallel()
	if !fails(t, func(t testing.TB) { modelReply(t, func() llm.Model { return unclassified{} }) }) {
		t.Error("an error without a code passes")
	}
}
