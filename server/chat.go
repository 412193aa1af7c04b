package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

var sdkParameter = parameter{name: "sdk", kind: "string", about: "The major version of the client's AI SDK: 5, 6 or 7; the header " + wire.HeaderAISDK + " does, too. Without it only what all of them read is sent."}

func chatRoutes() []route {
	events := []answer{{status: http.StatusOK, media: wire.ContentEvents}}
	return []route{
		{
			method: http.MethodPost, path: "/chat", summary: "Send a message, or answers, from a page that uses Vercel's AI SDK.",
			query: []parameter{sdkParameter, {name: "agent", kind: "string", about: "The agent of a new chat; the body's field goes first."}},
			body:  aisdk.Request{}, extra: true, forSDK: true, answers: events, handle: (*exchange).chat,
		},
		{
			method: http.MethodGet, path: "/chat/{id}/stream", summary: "Resume the stream of the reply that is being made. 204 if there is none.",
			query: []parameter{
				sdkParameter,
				{name: "run", kind: "string", about: "The run that was at work when the chat was read: its reply is shown also if it has ended since."},
				{name: "from", kind: "integer", about: "Begin after this sequence; the client has what came before."},
				{name: "tail", kind: "boolean", about: "Begin now; the client has what came before."},
			},
			forSDK: true, answers: append(events, answer{status: http.StatusNoContent}), handle: (*exchange).chatStream,
		},
		{
			method: http.MethodGet, path: "/chat/{id}/messages", summary: "Read a chat as UI messages.",
			query:   append([]parameter{sdkParameter}, messageParameters...),
			answers: ok(aisdk.Chat{}), handle: (*exchange).chatMessages,
		},
		{
			method: http.MethodPost, path: "/chat/{id}/submit-tool-result", summary: "Answer a call of a chat that waits for a person.",
			body: wire.ChatSubmit{}, handle: (*exchange).chatSubmit,
			answers: []answer{{status: http.StatusOK, body: wire.Submitted{}}, {status: http.StatusNotFound, body: wire.Submitted{}}},
		},
		{
			method: http.MethodPost, path: "/chat/{id}/interrupt", summary: "Stop the chat's run softly.",
			body: wire.ChatStop{}, answers: []answer{{status: http.StatusAccepted, body: wire.Stopping{}}},
			handle: func(x *exchange) error { return x.chatStop(session.StopInterrupt) },
		},
		{
			method: http.MethodPost, path: "/chat/{id}/abort", summary: "End the chat's run for good.",
			body: wire.ChatStop{}, answers: []answer{{status: http.StatusAccepted, body: wire.Stopping{}}},
			handle: func(x *exchange) error { return x.chatStop(session.StopAbort) },
		},
	}
}

// sdk is the version that the client says it uses.
func (x *exchange) sdk() (aisdk.Version, error) {
	text := x.r.URL.Query().Get("sdk")
	text = cmp.Or(text, x.r.Header.Get(wire.HeaderAISDK))
	return aisdk.ParseVersion(text)
}

// decodeChat reads the body of a chat's request, which may have fields of the
// application's own.
func (x *exchange) decodeChat() (*aisdk.Request, error) {
	body, release, err := x.body()
	if err != nil {
		return nil, err
	}
	defer release()
	limits := &x.server.cfg.Limits
	in, err := aisdk.Decode(body, aisdk.Limits{
		Tags: limits.Tags, Metadata: limits.Metadata, Parts: limits.Parts, RefuseRemoteFiles: limits.RefuseRemoteFiles,
	})
	if err == nil {
		err = in.Check()
	}
	return in, err
}

// chat takes a message or answers, and streams what they lead to. Whatever is
// refused is refused before the stream begins.
func (x *exchange) chat() error {
	version, err := x.sdk()
	if err != nil {
		return err
	}
	in, err := x.decodeChat()
	if err != nil {
		return err
	}
	if err := x.server.enter(x); err != nil { // before anything is done that the client would not see
		return err
	}
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.sessionIfAny(ctx, "id", in.ID)
	if err != nil {
		return err
	}
	if state != nil && state.ParentID != "" {
		return session.Invalid("id", "%q is the session of an agent which works for another", in.ID)
	}
	var turn *chatTurn
	switch {
	case state == nil && !in.Asks():
		return notFound(in.ID)
	case state == nil: // nothing was said yet, whatever the client believes
		turn, err = x.say(ctx, nil, in)
	case in.Trigger == aisdk.TriggerRegenerate:
		turn, err = x.regenerate(ctx, state, in)
	case in.Answers():
		turn, err = x.takeAnswers(ctx, state, in)
	case in.Edits():
		turn, err = x.edit(ctx, state, in)
	default:
		turn, err = x.say(ctx, state, in)
	}
	if err != nil {
		return x.hide(in.ID, err)
	}
	if turn.sent {
		return x.replay(version, state, turn.messageID)
	}
	return x.stream(ctx, version, turn)
}

// chatTurn is a run that a request led to, and where its stream begins for the
// client.
type chatTurn struct {
	run       helix.Run
	messageID string
	from      int64 // after the run's first sequence, if set
	// sent is set when the message was sent before: what came of it is shown.
	sent bool
	// continues is set when the client has the beginning of the message, with these
	// calls that wait.
	continues bool
	waiting   []session.Pending
}

// say begins a turn with the user's message.
func (x *exchange) say(ctx context.Context, state *session.State, in *aisdk.Request) (*chatTurn, error) {
	message, err := in.Input()
	if err != nil {
		return nil, err
	}
	if err := in.CheckNewID(); err != nil {
		return nil, err
	}
	request := message.ID // a message that is sent again is not said again
	message.ID = cmp.Or(message.ID, session.NewMessageID())
	agent, err := x.chatAgent(state, in)
	if err != nil {
		return nil, err
	}
	run, err := x.executeIn(ctx, state, agent, helix.Input{
		SessionID: in.ID, Message: message, User: x.who.user(), RequestID: request, AbandonPending: in.AbandonPending,
		Tags: in.Tags, Metadata: in.Metadata,
	})
	if err != nil {
		return nil, err
	}
	return &chatTurn{run: run, messageID: aisdk.ReplyID(in.ID, message.ID)}, nil
}

// chatAgent is the agent of a chat: of one that is new, the agent that is asked
// for, or the first.
func (x *exchange) chatAgent(state *session.State, in *aisdk.Request) (*helix.Agent, error) {
	if state != nil {
		return x.agentFor("id", state)
	}
	name := in.Agent
	name = cmp.Or(name, x.r.URL.Query().Get("agent"))
	if name == "" {
		if all := x.server.offered(); len(all) > 0 {
			return all[0], nil
		}
	}
	return x.server.agent("agent", name)
}

// takeAnswers submits the answers that the last message holds and goes on with them.
func (x *exchange) takeAnswers(ctx context.Context, state *session.State, in *aisdk.Request) (*chatTurn, error) {
	waiting, err := x.executor.Waiting(ctx, state.ID)
	if err != nil {
		return nil, err
	}
	turn := &chatTurn{continues: true, waiting: waiting}
	info, err := x.streams.Info(ctx, state.StreamID)
	if err != nil {
		return nil, err
	}
	run, err := x.current(ctx, state.ID)
	if err != nil {
		return nil, err
	}
	agent, err := x.agentFor("id", state)
	if err != nil {
		return nil, err
	}
	opened, err := x.mayContinue(ctx, state.ID, run)
	if err != nil {
		return nil, err
	}
	defer opened()
	answered := in.Answered()
	request := answersID(answered)
	submissions, err := x.submissions(answered, waiting)
	if err != nil {
		return nil, err
	}
	submitted, goesOn := false, false
	for _, s := range submissions {
		done, err := x.executor.Submit(ctx, state.ID, s)
		if err != nil {
			return nil, err
		}
		x.server.metrics.submitted(done.Outcome)
		submitted, goesOn = true, goesOn || done.Continuation == helix.ContinuesRunning
	}
	if turn.messageID, err = x.lastReply(ctx, state.ID); err != nil {
		return nil, err
	}
	if !submitted && run != nil && strings.HasPrefix(run.RequestID, request) { // it was sent before
		turn.run, err = x.executor.Attach(ctx, state.ID)
		return turn, err
	}
	if run != nil {
		request += run.ID // the same answers may be sent again when others are still missing
	}
	turn.run, err = x.executor.Resume(ctx, state.ID, helix.ResumeOptions{Agent: agent, RequestID: request})
	if err != nil && (goesOn || errors.Is(err, session.ErrAlreadyRunning)) { // a run takes the answers up itself
		turn.run, err = x.executor.Attach(ctx, state.ID)
		if err == nil && turn.run.ID() == in.ShownRun() {
			turn.from = info.Last // of a run that another resumed, the client has nothing
		}
	}
	return turn, err
}

// submissions are the answers to calls that wait. The others are to calls of the
// server's own, or were given before. If one cannot be taken, none is.
func (x *exchange) submissions(answered []aisdk.Part, waiting []session.Pending) ([]helix.Submission, error) {
	waits := map[string]*session.Pending{}
	for i := range waiting {
		waits[waiting[i].CallID] = &waiting[i]
	}
	var out []helix.Submission
	for i := range answered {
		pending := waits[answered[i].CallID]
		if pending == nil {
			continue
		}
		s := answered[i].Submission()
		if pending.Kind == session.PendingApproval {
			if decision, ok := answered[i].Decision(); ok {
				s = decision
			}
		}
		if s.Response.Approved && !answered[i].Shows(pending.Input) {
			return nil, errNotShown
		}
		s = s.By(x.who.user())
		if err := s.Check(); err != nil {
			return nil, err
		}
		if err := x.server.checkAnswer(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// errNotShown refuses an approval of a call that the page has not shown as it is.
var errNotShown = session.Invalid("messages", "approve a call whose input the page does not show as it is; "+
	"GET /waiting has it whole, and the chat's submit-tool-result takes the approval")

// answersID begins the request id of answers, which tells when they are sent again.
func answersID(parts []aisdk.Part) string {
	var ids []string
	for i := range parts {
		id := parts[i].CallID
		if a := parts[i].Approval; a != nil {
			id += "/" + a.ID
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, "\n")))
	return "answers-" + hex.EncodeToString(sum[:12]) + "-"
}

// lastReply is the id of the UI message that the transcript ends in.
func (x *exchange) lastReply(ctx context.Context, id string) (string, error) {
	shot, err := x.recent(ctx, id)
	if err != nil {
		return "", err
	}
	return aisdk.Last(id, shot.Messages).ID, nil
}

// regenerate makes a reply anew.
func (x *exchange) regenerate(ctx context.Context, state *session.State, in *aisdk.Request) (*chatTurn, error) {
	group, err := x.group(ctx, state.ID, in.Target())
	if errors.Is(err, session.ErrNotFound) && in.TargetSent() {
		return x.say(ctx, state, in) // what it replies to never arrived
	}
	if err != nil {
		return nil, err
	}
	at, err := x.checkpointAt(ctx, state.ID, group.End, group.Begun)
	if err != nil {
		return nil, err
	}
	if at == "" {
		return nil, errNoWayBack()
	}
	return x.rewound(ctx, state, group.ID, helix.ResumeOptions{Checkpoint: at})
}

// edit replaces a message of the user, and what came after it.
func (x *exchange) edit(ctx context.Context, state *session.State, in *aisdk.Request) (*chatTurn, error) {
	message, err := in.Input()
	if err != nil {
		return nil, err
	}
	group, err := x.group(ctx, state.ID, in.MessageID)
	if errors.Is(err, session.ErrNotFound) {
		return x.say(ctx, state, in) // it never arrived
	}
	if err != nil {
		return nil, err
	}
	if sameParts(group.User, &message) { // it is sent again, not replaced
		return &chatTurn{sent: true, messageID: group.ID}, nil
	}
	if group.kept == 0 {
		return nil, refuse(http.StatusConflict, session.CodeNotResumable, "The first message of a chat cannot be replaced. Begin a new chat.")
	}
	opts := helix.ResumeOptions{Message: &message}
	opts.Checkpoint, err = x.checkpointAt(ctx, state.ID, group.kept, group.End-1)
	if err == nil && opts.Checkpoint == "" && !group.joins {
		// There is none after a step that was left in the middle.
		opts.ReplaceInput = true
		opts.Checkpoint, err = x.checkpointAt(ctx, state.ID, group.End, group.Begun)
	}
	if err != nil {
		return nil, err
	}
	if opts.Checkpoint == "" {
		return nil, errNoWayBack()
	}
	return x.rewound(ctx, state, group.ID, opts)
}

func errNoWayBack() error {
	return refuse(http.StatusConflict, session.CodeNotResumable, "The chat cannot go back to this message.")
}

// sameParts reports whether two messages say the same.
func sameParts(a, b *session.Message) bool {
	one, err := session.Encode(a.Parts)
	if err != nil {
		return false
	}
	other, err := session.Encode(b.Parts)
	return err == nil && bytes.Equal(one, other)
}

func (x *exchange) rewound(ctx context.Context, state *session.State, messageID string, opts helix.ResumeOptions) (*chatTurn, error) {
	agent, err := x.agentFor("id", state)
	if err != nil {
		return nil, err
	}
	done, err := x.mayRun(ctx, state.ID, opts.RequestID)
	if err != nil {
		return nil, err
	}
	defer done()
	opts.Agent = agent
	run, err := x.executor.Resume(ctx, state.ID, opts)
	if err != nil {
		return nil, err
	}
	return &chatTurn{run: run, messageID: messageID}, nil
}

// said is a message of the user in its chat, and the reply to it.
type said struct {
	aisdk.Group
	// kept is the number of messages before the turn that the message began: results
	// with which the turn answered what an earlier one had left open do not count, since
	// a turn in its place answers them again.
	kept int
	// joins is set if an earlier message that the user sees began the same turn.
	joins bool
}

// group finds the part of the transcript that a UI message belongs to, the last if
// none is named.
func (x *exchange) group(ctx context.Context, id, uiMessage string) (*said, error) {
	messages, err := x.transcript(ctx, id)
	if err != nil {
		return nil, err
	}
	groups := aisdk.Groups(id, messages)
	for _, g := range slices.Backward(groups) {
		if g.User == nil || (uiMessage != "" && g.User.ID != aisdk.UserOf(uiMessage)) {
			continue
		}
		out := &said{Group: g, kept: g.End - 1}
		for out.kept > 0 && messages[out.kept-1].RunID == g.User.RunID && messages[out.kept-1].Role != session.RoleAssistant {
			out.kept--
			out.joins = out.joins || messages[out.kept].Role == session.RoleUser && !messages[out.kept].Hidden()
		}
		return out, nil
	}
	return nil, session.ErrNotFound.WithMessage("there is no message %.60q in the chat", uiMessage)
}

// checkpointAt finds the newest checkpoint with so many messages; the id is empty if
// there is none.
func (x *exchange) checkpointAt(ctx context.Context, id string, least, most int) (string, error) {
	request := session.PageRequest{Limit: session.MaxPageSize}
	for {
		page, err := x.sessions.Checkpoints(ctx, id, request)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			at := &page.Items[i]
			if !at.Undone && at.MessageCount >= least && at.MessageCount <= most {
				return at.ID, nil
			}
		}
		if !page.HasMore {
			return "", nil
		}
		request.Cursor = page.Next
	}
}

func (x *exchange) chatSubmit() error {
	in, err := decode(x, readChatSubmit)
	if err != nil {
		return err
	}
	return x.submitTo("id", x.r.PathValue("id"), in)
}

func (x *exchange) chatStop(kind session.StopKind) error {
	in, err := decode(x, readChatStop)
	if err != nil {
		return err
	}
	return x.stopOf("id", x.r.PathValue("id"), kind, in)
}
