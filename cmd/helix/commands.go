package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

var errQuit = errors.New("quit")

const help = `Enter a message, or:
  /help          show this
  /history       show the whole conversation
  /retry         run a failed turn again
  /resume        continue a turn that was stopped
  /answer        answer the open questions of the session
  /abandon TEXT  send a message without answering first
  /skills        list the agent's skills; /skill NAME TEXT sends a message with one
  /new           start a new session
  /sessions      list the sessions
  /open ID       continue another session
  /quit          quit (also Ctrl-D, or Ctrl-C on an empty line; Ctrl-C stops an answer)`

// enter handles a line: a command or a message.
func (c *chat) enter(ctx context.Context, line string) error {
	if line == "" {
		return nil
	}
	if !strings.HasPrefix(line, "/") {
		return c.say(ctx, wire.Text(line), false)
	}
	name, argument, _ := strings.Cut(line, " ")
	argument = strings.TrimSpace(argument)
	switch {
	case name == "/open" && argument != "":
		return c.switchTo(ctx, argument)
	case name == "/abandon" && argument != "":
		return c.say(ctx, wire.Text(argument), true)
	case name == "/skill":
		return c.sayWith(ctx, argument)
	case name == "/abandon":
		return errors.New("/abandon requires a message")
	case name == "/open":
		return errors.New("/open requires the id of a session; /sessions lists them")
	case argument != "":
		return fmt.Errorf("%s takes no argument; /help lists the commands", name)
	}
	switch name {
	case "/help":
		c.screen.block(help)
	case "/history":
		return c.history(ctx, 0)
	case "/retry", "/resume":
		return c.retry(ctx)
	case "/answer":
		return c.answerAgain(ctx)
	case "/skills":
		return c.skills(ctx)
	case "/new":
		return c.begin(ctx)
	case "/sessions":
		return c.list(ctx)
	case "/quit", "/exit":
		return errQuit
	default:
		return fmt.Errorf("unknown command %s; /help lists the commands", name)
	}
	return nil
}

// sayWith sends a message that chooses a skill.
func (c *chat) sayWith(ctx context.Context, argument string) error {
	name, words, _ := strings.Cut(argument, " ")
	if words = strings.TrimSpace(words); words == "" {
		return errors.New("/skill requires the name of a skill and a message; /skills lists them")
	}
	message := wire.Text(words)
	message[0].Skills = []string{name}
	return c.say(ctx, message, false)
}

// skills lists the agent's skills.
func (c *chat) skills(ctx context.Context) error {
	all, err := c.client.Skills(ctx, c.agent)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		c.screen.block("The agent has no skills.")
		return nil
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for i := range all {
		fmt.Fprintf(table, "%s\t%s\n", all[i].Name, firstSentence(all[i].Description))
	}
	_ = table.Flush() // to memory
	c.screen.block(strings.TrimRight(out.String(), "\n"))
	return nil
}

// open opens the first session: the named one, the most recent one, or a new one. A script
// that names none gets a new one, and so does a user of a shared server.
func (c *chat) open(ctx context.Context, id string) error {
	if id == "" && c.owned && c.screen.interactive {
		all, err := c.all(ctx)
		if err != nil {
			return err
		}
		id = latest(all, c.user)
	}
	var state *session.State
	if id != "" {
		var err error
		if state, err = c.load(ctx, id); err != nil && !errors.Is(err, helix.ErrNotFound) {
			return err
		}
	}
	c.screen.note("helix chat · %s", c.where)
	c.screen.note("%s /help lists the commands.", c.greeting)
	switch {
	case state != nil:
		return c.continueSession(ctx, state)
	case id == "" && c.screen.interactive:
		return c.begin(ctx)
	case id == "": // scripts may begin several at the same time
		return nil
	}
	c.id = id
	c.screen.note("New session %q.", id)
	return nil
}

// load reads a session and checks that it belongs to this agent.
func (c *chat) load(ctx context.Context, id string) (*session.State, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	state, err := c.client.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	if state.Agent != c.agent {
		return nil, fmt.Errorf("session %q belongs to agent %q, which is not the agent of this chat", id, state.Agent)
	}
	return state, nil
}

// switchTo continues an existing session.
func (c *chat) switchTo(ctx context.Context, id string) error {
	state, err := c.load(ctx, id)
	if errors.Is(err, helix.ErrNotFound) {
		return fmt.Errorf("there is no session %q; /sessions lists them", id)
	}
	if err != nil {
		return err
	}
	return c.continueSession(ctx, state)
}

// continueSession continues a session: it shows the latest messages and the rest of an unfinished
// turn. A script does not see earlier messages.
func (c *chat) continueSession(ctx context.Context, state *session.State) error {
	c.id = state.ID
	c.screen.note("Session %q, turn %d:", c.id, state.Turn)
	if unfinished, err := c.finishEarlier(ctx); unfinished || err != nil {
		return err
	}
	if c.screen.interactive {
		if err := c.history(ctx, 1); err != nil {
			return err
		}
	}
	status, err := c.client.Status(ctx, c.id)
	if err != nil {
		return err
	}
	failed := c.failed
	err = c.stand(ctx, status)
	c.failed = failed // an earlier turn, which the script knows about
	return err
}

// history shows the latest exchanges of the session; 0 shows all.
func (c *chat) history(ctx context.Context, exchanges int) error {
	var messages []session.Message
	if c.id != "" {
		var err error
		if messages, err = allMessages(ctx, c.client, c.id); err != nil && !errors.Is(err, helix.ErrNotFound) {
			return err
		}
	}
	if len(messages) == 0 {
		c.screen.note("The session has no messages yet.")
		return nil
	}
	from := 0
	for i := len(messages) - 1; i >= 0 && exchanges > 0; i-- {
		if messages[i].Role == session.RoleUser && !messages[i].Hidden() {
			from = i
			exchanges--
		}
	}
	c.screen.transcript(messages[from:])
	return nil
}

// retry retries the last turn if it failed, and resumes it if it was stopped, so that
// /retry and /resume are interchangeable.
func (c *chat) retry(ctx context.Context) error {
	if c.id == "" {
		return errNothingYet
	}
	status, err := c.client.Status(ctx, c.id)
	if errors.Is(err, helix.ErrNotFound) {
		return errNothingYet
	}
	if err != nil {
		return err
	}
	switch status.Activity {
	case session.ActivityFailed:
		return c.turn(ctx, func() (*wire.Started, error) { return c.client.Retry(ctx, c.id, wire.Retry{}) })
	case session.ActivityStopped:
		return c.turn(ctx, func() (*wire.Started, error) { return c.client.Resume(ctx, wire.Resume{SessionID: c.id}) })
	case session.ActivityWaiting:
		return c.answer(ctx)
	}
	return errors.New("nothing to retry: the last turn is complete")
}

var errNothingYet = errors.New("there is no turn to retry yet")

const firstSession = "chat"

// maxNames limits how many ids are tried for a new session.
const maxNames = 10_000

// begin opens a new session with the id chat, chat-2, chat-3 and so on, or one that the
// server chooses. Its first turn creates it.
func (c *chat) begin(ctx context.Context) error {
	c.id = ""
	if !c.owned { // another user may have a session with that id
		c.screen.note("Your next message starts a new session.")
		return nil
	}
	for n := 1; n <= maxNames; n++ {
		id := firstSession
		if n > 1 {
			id = fmt.Sprintf("%s-%d", firstSession, n)
		}
		_, err := c.client.Session(ctx, id)
		if errors.Is(err, helix.ErrNotFound) {
			c.id = id
			c.screen.note("New session %q.", id)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list shows the sessions.
func (c *chat) list(ctx context.Context) error {
	all, err := c.all(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		c.screen.note("There are no sessions yet.")
		return nil
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range all {
		mark := " "
		if all[i].ID == c.id {
			mark = "*"
		}
		fmt.Fprintf(table, "%s %s\tturn %d\t%s\t%s\n", mark, all[i].ID, all[i].Turn, all[i].Activity,
			all[i].UpdatedAt.Local().Format("2006-01-02 15:04"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	c.screen.block(strings.TrimRight(b.String(), "\n"))
	return nil
}

// maxListed limits how many sessions a chat reads.
const maxListed = 1000

// all returns the agent's sessions, newest first.
func (c *chat) all(ctx context.Context) ([]session.Summary, error) {
	var out []session.Summary
	query := session.Query{Agent: c.agent, RootsOnly: true, PageRequest: session.PageRequest{Limit: session.MaxPageSize}}
	for s, err := range c.client.AllSessions(ctx, query) {
		if err != nil {
			return nil, err
		}
		if out = append(out, s); len(out) == maxListed {
			break
		}
	}
	return out, nil
}

// latest returns the id of the user's most recent session, or "". A store that servers also
// use has sessions of other users.
func latest(all []session.Summary, user string) (id string) {
	var at time.Time
	for i := range all {
		if all[i].UserID == user && all[i].UpdatedAt.After(at) {
			id, at = all[i].ID, all[i].UpdatedAt
		}
	}
	return id
}
