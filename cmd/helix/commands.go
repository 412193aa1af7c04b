package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

var errQuit = errors.New("quit")

const help = `Say something, or:
  /help          show this
  /history       show the whole conversation
  /retry         run a failed turn again, or go on with one that was stopped
  /answer        answer what the session waits for
  /abandon TEXT  say something without answering first
  /new           begin another session
  /sessions      list the sessions
  /open ID       go on with another session
  /quit          leave (also Ctrl-D, or Ctrl-C here; Ctrl-C stops an answer)`

// enter acts on a line: a command, or something to say.
func (c *chat) enter(ctx context.Context, line string) error {
	if line == "" {
		return nil
	}
	if !strings.HasPrefix(line, "/") {
		return c.say(ctx, line)
	}
	name, argument, _ := strings.Cut(line, " ")
	argument = strings.TrimSpace(argument)
	switch {
	case name == "/open" && argument != "":
		return c.switchTo(ctx, argument)
	case name == "/abandon" && argument != "":
		return c.turn(ctx, func() (helix.Run, error) {
			return c.rt.Execute(ctx, c.agent, helix.Input{SessionID: c.id, Message: helix.UserText(argument), AbandonPending: true})
		})
	case name == "/abandon":
		return errors.New("/abandon needs something to say instead")
	case name == "/open":
		return errors.New("/open needs the id of a session; /sessions lists them")
	case argument != "":
		return fmt.Errorf("%s takes no argument; /help lists the commands", name)
	}
	switch name {
	case "/help":
		c.screen.block(help)
	case "/history":
		return c.history(ctx, 0)
	case "/retry":
		return c.retry(ctx)
	case "/answer":
		return c.answerAgain(ctx)
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

// open goes to the session that the program was started with: the named one, the
// one used last, or a new one.
func (c *chat) open(ctx context.Context, id, path string) error {
	if id == "" {
		all, err := c.all(ctx)
		if err != nil {
			return err
		}
		id = latest(all)
	}
	state, err := c.load(ctx, id)
	fresh := errors.Is(err, helix.ErrNotFound)
	if err != nil && !fresh {
		return err
	}
	c.screen.note("helix chat · %s", path)
	c.screen.note("%s /help lists the commands.", c.greeting)
	if fresh {
		c.id = id
		c.screen.note("New session %q.", id)
		return nil
	}
	return c.goOn(ctx, state)
}

// load reads a session of this agent.
func (c *chat) load(ctx context.Context, id string) (*session.State, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	state, err := c.sessions.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	if state.Agent != c.agent.Name {
		return nil, fmt.Errorf("session %q belongs to agent %q, not to this chat", id, state.Agent)
	}
	return state, nil
}

// switchTo goes on with a session that exists.
func (c *chat) switchTo(ctx context.Context, id string) error {
	state, err := c.load(ctx, id)
	if errors.Is(err, helix.ErrNotFound) {
		return fmt.Errorf("there is no session %q; /sessions lists them", id)
	}
	if err != nil {
		return err
	}
	return c.goOn(ctx, state)
}

// goOn continues a session: it shows where it stands, and the end of a turn that
// was left unfinished.
func (c *chat) goOn(ctx context.Context, state *session.State) error {
	c.id = state.ID
	c.screen.note("Session %q, turn %d:", c.id, state.Turn)
	if unfinished, err := c.finishEarlier(ctx); unfinished || err != nil {
		return err
	}
	if err := c.history(ctx, 1); err != nil {
		return err
	}
	switch state.Status {
	case session.Failed:
		c.screen.note("That turn failed: %v. /retry tries again.", state.Error)
	case session.Interrupted:
		c.screen.note("That turn was stopped. /retry goes on with it.")
	case session.Active:
		return c.answer(ctx)
	}
	return nil
}

// history shows the latest exchanges of the session; 0 shows all.
func (c *chat) history(ctx context.Context, exchanges int) error {
	messages, err := c.sessions.AllMessages(ctx, c.id)
	if errors.Is(err, helix.ErrNotFound) || (err == nil && len(messages) == 0) {
		c.screen.note("Nothing has been said yet.")
		return nil
	}
	if err != nil {
		return err
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

// retry runs the last turn again if it failed, and goes on with it if it was
// stopped.
func (c *chat) retry(ctx context.Context) error {
	state, err := c.sessions.Load(ctx, c.id)
	if errors.Is(err, helix.ErrNotFound) {
		return errors.New("there is no turn to retry yet")
	}
	if err != nil {
		return err
	}
	switch state.Status {
	case session.Failed:
		return c.turn(ctx, func() (helix.Run, error) {
			return c.rt.Retry(ctx, c.agent, c.id, helix.RetryOptions{})
		})
	case session.Interrupted:
		return c.turn(ctx, func() (helix.Run, error) {
			return c.rt.Resume(ctx, c.agent, c.id, helix.ResumeOptions{})
		})
	}
	return errors.New("there is nothing to retry: the last turn is complete")
}

const firstSession = "chat"

// begin goes to a new session, named chat, chat-2, chat-3 and so on. It is made
// by its first turn.
func (c *chat) begin(ctx context.Context) error {
	for n := 1; ; n++ {
		id := firstSession
		if n > 1 {
			id = fmt.Sprintf("%s-%d", firstSession, n)
		}
		taken, err := c.sessions.Exists(ctx, id)
		if err != nil {
			return err
		}
		if !taken {
			c.id = id
			c.screen.note("New session %q.", id)
			return nil
		}
	}
}

// list shows the sessions there are.
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
		fmt.Fprintf(table, "%s %s\tturn %d\t%s\t%s\n", mark, all[i].ID, all[i].Turn, all[i].Status,
			all[i].UpdatedAt.Local().Format("2006-01-02 15:04"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	c.screen.block(strings.TrimRight(b.String(), "\n"))
	return nil
}

// all lists the agent's sessions, newest first.
func (c *chat) all(ctx context.Context) ([]session.Summary, error) {
	var out []session.Summary
	query := session.Query{Agent: c.agent.Name, RootsOnly: true, PageRequest: session.PageRequest{Limit: session.MaxPageSize}}
	for {
		page, err := c.sessions.List(ctx, query)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if !page.HasMore {
			return out, nil
		}
		query.Cursor = page.Next
	}
}

// latest is the id of the session that was used last, or that of the first one.
func latest(all []session.Summary) string {
	id, at := firstSession, time.Time{}
	for i := range all {
		if all[i].UpdatedAt.After(at) {
			id, at = all[i].ID, all[i].UpdatedAt
		}
	}
	return id
}

// readLines gives the lines of a reader, the last one also when it is not ended.
func readLines(in io.Reader) <-chan string {
	lines := make(chan string)
	go func() { // ends with the process: a read from a terminal cannot be cancelled
		defer close(lines)
		reader := bufio.NewReader(in)
		for {
			line, err := reader.ReadString('\n')
			if line != "" {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}
