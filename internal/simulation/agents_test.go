package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// rushDeadline is how long a call of the tool rush waits for a person.
const rushDeadline = 20 * time.Second

var errGone = errors.New("the process is gone")

// newAgents returns the agents of a process. They decide from the transcript alone, so that any process continues where
// another one ended.
func (p *process) newAgents() map[string]*helix.Agent {
	tools := map[string]helix.Tool{
		"pay":   {Name: "pay", Execute: p.tool("pay")},
		"look":  {Name: "look", Execute: p.tool("look"), ReadOnly: true},
		"send":  {Name: "send", Execute: p.tool("send"), Idempotent: true},
		"sign":  {Name: "sign", Execute: p.tool("sign"), Approval: helix.RequireApproval},
		"rush":  {Name: "rush", Execute: p.tool("rush"), Approval: helix.RequireApproval, Deadline: rushDeadline},
		"order": {Name: "order", Execute: p.tool("order"), Asks: true},
	}
	helper := &helix.Agent{
		Name: "helper", Model: model{p, []string{"pay", "look", "sign"}}, MaxSteps: helix.Unlimited, State: helix.StateOf(ledger{}),
		Tools: []helix.Tool{tools["pay"], tools["look"], tools["sign"]},
	}
	clerk := &helix.Agent{
		Name: "clerk", MaxSteps: helix.Unlimited, State: helix.StateOf(ledger{}),
		Model:      model{p, []string{"pay", "look", "send", "pay", "look", "sign", "rush", "order", helix.SubAgentPrefix + "helper"}},
		Tools:      []helix.Tool{tools["pay"], tools["look"], tools["send"], tools["sign"], tools["rush"], tools["order"]},
		SubAgents:  []helix.SubAgent{{Agent: helper}},
		Extensions: []helix.Extension{notary{p}},
	}
	return map[string]*helix.Agent{"clerk": clerk, "helper": helper}
}

// ledger is the state of an agent: the calls of pay that succeeded.
type ledger struct {
	Paid []string `json:"paid"`
}

// model makes some calls and then answers.
type model struct {
	p     *process
	tools []string
}

// Generate implements [llm.Model].
func (m model) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	p, w := m.p, m.p.w
	defer p.begin(r.SessionID)()
	if !p.alive.Load() {
		return nil, errGone
	}
	w.mu.Lock()
	at := len(w.asked[r.SessionID])
	w.asked[r.SessionID] = append(w.asked[r.SessionID], modelUse{by: p, from: w.now()})
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked[r.SessionID][at].till = w.now()
	}()

	replies := 0 // since the last message of a person
	for i := range r.Messages {
		switch r.Messages[i].Role {
		case session.RoleAssistant:
			replies++
		case session.RoleUser:
			replies = 0
		}
	}
	plan := rand.New(rand.NewPCG(w.seed, hash(fmt.Sprint(r.SessionID, len(r.Messages)))))
	// Every asking gives other words: a reply that was lost cannot hide.
	text := fmt.Sprintf("reply %d, %x.", replies+1, rand.Uint32())
	for _, word := range strings.SplitAfter(text, " ") {
		if err := retry.Sleep(ctx, rand.N(time.Second)); err != nil {
			return nil, err
		}
		p.wait()
		emit(llm.Delta{Kind: llm.DeltaText, Text: word})
	}
	if rand.IntN(40) == 0 && w.modelMayFail(r.SessionID) {
		return nil, llm.Error("provider_unavailable", true, "the model is away for a moment")
	}
	response := &llm.Response{Parts: []session.Part{session.Text(text)}, Finish: llm.FinishStop, Model: "simulated"}
	if replies >= plan.IntN(5) {
		return response, ctx.Err()
	}
	for range 1 + plan.IntN(3) {
		response.Parts = append(response.Parts, session.Part{
			Kind: session.PartToolCall, Tool: m.tools[plan.IntN(len(m.tools))], Input: json.RawMessage(`{"task":"t"}`),
			ProviderCallID: fmt.Sprintf("p%x", rand.Uint64()),
		})
	}
	response.Finish = llm.FinishToolCalls
	return response, ctx.Err()
}

// modelMayFail reports whether the model may fail now, for a session: not twice in a row, or a run would fail in the end.
func (w *world) modelMayFail(session string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	may := !w.quiet.Load() && !w.modelFailed[session]
	w.modelFailed[session] = may
	return may
}

// tool returns a tool whose starts the service outside counts.
func (p *process) tool(name string) helix.Callable {
	return helix.Func(func(ctx context.Context, call *helix.Call, _ struct {
		Task string `json:"task"`
	},
	) (string, error) {
		defer p.begin(call.SessionID)()
		w := p.w
		if name == "order" && len(call.Answers()) == 0 {
			return "", helix.Ask(helix.Question{Prompt: "Which size?"})
		}
		p.wait()
		if !p.alive.Load() {
			return "", errGone
		}
		w.mu.Lock()
		key := name + " " + call.IdempotencyKey()
		w.effects[key] = append(w.effects[key], effect{p, w.now()})
		w.mu.Unlock()
		if err := retry.Sleep(ctx, rand.N(4*time.Second)); err != nil {
			return "", err
		}
		p.wait()
		if name == "pay" {
			helix.Append(call, "paid", call.ID)
		}
		if name == "order" {
			return "of size " + string(call.Answers()[0].Answer), nil
		}
		return name + " " + call.ID, nil
	})
}

// notary is an extension that has a line written elsewhere after every run.
type notary struct{ p *process }

func (notary) Name() string { return "notary" }

func (notary) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	return &helix.Attachment{}, nil
}

func (notary) Finish(context.Context, *helix.Turn, *session.Outcome) ([]session.Task, error) {
	return []session.Task{{Kind: "note"}}, nil
}

func (notary) TaskKinds() []string { return []string{"note"} }

func (n notary) HandleTask(ctx context.Context, task *session.Task) error {
	if err := retry.Sleep(ctx, rand.N(2*time.Second)); err != nil {
		return err
	}
	if n.p.wait(); !n.p.alive.Load() {
		return errGone
	}
	n.p.w.mu.Lock()
	defer n.p.w.mu.Unlock()
	n.p.w.notes[task.ID] = task.RunID
	return nil
}
