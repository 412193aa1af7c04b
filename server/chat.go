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

var sdkParameter = parameter{name: "sdk", kind: "string", about: "The major version of the client's AI SDK: 5, 6 or 7; the header " + wire.HeaderAISDK + " has the same meaning. Defaults to what all versions can read."}

func chatRoutes() []route {
	events := []answer{{status: http.StatusOK, media: wire.ContentEvents}}
	return []route{
		{
			method: http.MethodPost, path: "/chat", summary: "Send a message, or answers, from a page that uses Vercel's AI SDK.",
			query: []parameter{sdkParameter, {name: "agent", kind: "string", about: "The agent of a new chat; the body's field takes precedence."}},
			body:  aisdk.Request{}, extra: true, forSDK: true, answers: events, handle: (*exchange).chat,
		},
		{
			method: http.MethodGet, path: "/chat/{id}/stream", summary: "Resume the stream of the reply in progress. 204 if there is none.",
			query: []parameter{
				sdkParameter,
				{name: "run", kind: "string", about: "The run that was in progress when the chat was read: its reply is sent even if the run has ended since."},
				{name: "from", kind: "integer", about: "Start after this sequence; the client has everything before it."},
				{name: "tail", kind: "boolean", about: "Start now; the client has everything before."},
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
			method: http.MethodPost, path: "/chat/{id}/interrupt", summary: "Stop the chat's run; it can be resumed.",
			body: wire.ChatStop{}, answers: []answer{{status: http.StatusAccepted, body: wire.Stopping{}}},
			handle: func(x *exchange) error { return x.chatStop(session.StopInterrupt) },
		},
		{
			method: http.MethodPost, path: "/chat/{id}/abort", summary: "End the chat's run permanently.",
			body: wire.ChatStop{}, answers: []answer{{status: http.StatusAccepted, body: wire.Stopping{}}},
			handle: func(x *exchange) error { return x.chatStop(session.StopAbort) },
		},
	}
}

// sdk returns the AI SDK version of the client.
func (x *exchange) sdk() (aisdk.Version, error) {
	text := x.r.URL.Query().Get("sdk")
	text = cmp.Or(text, x.r.Header.Get(wire.HeaderAISDK))
	return aisdk.ParseVersion(text)
}

// decodeChat decodes the body of a chat request, which may have additional fields of the
// application.
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

// chat accepts a message or answers, and streams the run that they start. It refuses a
// request before the stream begins.
func (x *exchange) chat() error {
	version, err := x.sdk()
	if err != nil {
		return err
	}
	in, err := x.decodeChat()
	if err != nil {
		return err
	}
	if err := x.server.enter(x); err != nil { // before the request has effects that the client would not see
		return err
	}
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.sessionIfAny(ctx, "id", in.ID)
	if err != nil {
		return err
	}
	if state != nil && state.ParentID != "" {
		return session.Invalid("id", "%q is the session of a sub-agent; use the conversation's root session", in.ID)
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

// chatTurn is the run of a request and the start of its stream for the client.
type chatTurn struct {
	run       helix.Run
	messageID string
	from      int64 // after the run's first sequence, if set
	// sent is set if the same message was sent before: its run is shown.
	sent bool
	// continues is set if the client has the beginning of the message, with these waiting
	// calls.
	continues bool
	waiting   []session.Pending
}

// say starts a turn with the user's message.
func (x *exchange) say(ctx context.Context, state *session.State, in *aisdk.Request) (*chatTurn, error) {
	message, err := in.Input()
	if err != nil {
		return nil, err
	}
	if err := in.CheckNewID(); err != nil {
		return nil, err
	}
	request := message.ID // makes a repeated message idempotent
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

// chatAgent returns the agent of a chat. For a new chat it is the requested agent, or the
// first.
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

// takeAnswers submits the answers in the last message and continues the chat with them.
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
	submitted, runs := false, false
	for _, s := range submissions {
		done, err := x.executor.Submit(ctx, state.ID, s)
		if err != nil {
			return nil, err
		}
		x.server.metrics.submitted(done.Outcome)
		submitted, runs = true, runs || done.Continuation == helix.ContinuesRunning
	}
	if turn.messageID, err = x.lastReply(ctx, state.ID); err != nil {
		return nil, err
	}
	if !submitted && run != nil && strings.HasPrefix(run.RequestID, request) { // the answers were sent before
		turn.run, err = x.executor.Attach(ctx, state.ID)
		return turn, err
	}
	if run != nil {
		request += run.ID // the same answers may be sent again while others are missing
	}
	turn.run, err = x.executor.Resume(ctx, state.ID, helix.ResumeOptions{Agent: agent, RequestID: request})
	if err != nil && (runs || errors.Is(err, session.ErrAlreadyRunning)) { // the run uses the answers itself
		turn.run, err = x.executor.Attach(ctx, state.ID)
		if err == nil && turn.run.ID() == in.ShownRun() {
			turn.from = info.Last // another process resumed the run: the client has none of it
		}
	}
	return turn, err
}

// submissions returns the answers to waiting calls. Answers to the server's own calls, and
// those given before, are ignored. If one is invalid, all are refused.
func (x *exchange) submissions(answered []aisdk.Part, waiting []session.Pending) ([]helix.Submission, error) {
	waits := map[string]*session.Pending{}
	for i := range waiting {
		waits[waiting[i].Call()] = &waiting[i]
	}
	var out []helix.Submission
	for i := range answered {
		pending := waits[answered[i].CallID]
		if pending == nil {
			continue
		}
		s := answered[i].Submission()
		if pending.Kind == session.PendingQuestion {
			var given bool
			if s, given = answered[i].Answer(pending); !given {
				continue
			}
		}
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

// errNotShown refuses an approval of a call whose exact input the page has not shown.
var errNotShown = session.Invalid("messages", "approve a call whose exact input the page does not show; "+
	"GET /waiting returns it, and the chat's submit-tool-result accepts the approval")

// answersID returns the prefix of the request id for answers, which identifies repeated
// ones.
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

// lastReply returns the id of the last UI message of the transcript.
func (x *exchange) lastReply(ctx context.Context, id string) (string, error) {
	shot, err := x.recent(ctx, id)
	if err != nil {
		return "", err
	}
	return aisdk.Last(id, shot.Messages).ID, nil
}

// regenerate repeats a reply.
func (x *exchange) regenerate(ctx context.Context, state *session.State, in *aisdk.Request) (*chatTurn, error) {
	group, err := x.group(ctx, state.ID, in.Target())
	if errors.Is(err, session.ErrNotFound) && in.TargetSent() {
		return x.say(ctx, state, in) // the message before it never arrived
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

// edit replaces a message of the user and everything after it.
func (x *exchange) edit(ctx context.Context, state *session.State, in *aisdk.Request) (*chatTurn, error) {
	message, err := in.Input()
	if err != nil {
		return nil, err
	}
	group, err := x.group(ctx, state.ID, in.MessageID)
	if errors.Is(err, session.ErrNotFound) {
		return x.say(ctx, state, in) // the message never arrived
	}
	if err != nil {
		return nil, err
	}
	if sameParts(group.User, &message) { // a repeated message, not a new one
		return &chatTurn{sent: true, messageID: group.ID}, nil
	}
	if group.kept == 0 {
		return nil, refuse(http.StatusConflict, session.CodeNotResumable, "The first message of a chat cannot be replaced. Start a new chat.")
	}
	opts := helix.ResumeOptions{Message: &message}
	opts.Checkpoint, err = x.checkpointAt(ctx, state.ID, group.kept, group.End-1)
	if err == nil && opts.Checkpoint == "" && !group.joins {
		// A step that was left in the middle has none.
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

// sameParts reports whether two messages have the same content.
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
	// kept is the number of messages before the message's turn. Results with which the turn
	// answered calls of an earlier turn do not count, because a turn in its place answers
	// them again.
	kept int
	// joins is set if an earlier visible message of the user belongs to the same turn.
	joins bool
}

// group returns the part of the transcript that a UI message belongs to, or the last part
// if id is empty.
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

// checkpointAt returns the newest checkpoint with this number of messages, or "".
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
