package server

import (
	"context"
	"math"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// UIMessages is a page of a chat.
type UIMessages struct {
	Messages []aisdk.Message
	// Total is how many messages the chat has; HasMore says whether some come after these.
	Total   int
	HasMore bool
}

// UIMessageOptions are the options of [LoadUIMessages].
type UIMessageOptions struct {
	// Tenant is the tenant of the session. Defaults to [session.DefaultTenant].
	Tenant string
	// Offset is the index of the first message; the oldest has 0. Limit is how many there
	// are at most. Limit defaults to 50 and is at most 200.
	Offset, Limit int
	// Version is that of the AI SDK which reads them. Defaults to [aisdk.Default].
	Version aisdk.Version
	// GenerateID, if set, gives each message its id, from its index in the chat and the
	// message. By default the ids are those by which pages ask the server for a reply to be
	// made anew, and for a message to be replaced.
	GenerateID func(index int, m *aisdk.Message) string
	// ErrorText is what a user is told of a run that failed. Defaults to [wire.Explain].
	ErrorText func(*session.Error) string
	aisdk.Options
}

// LoadUIMessages reads a page of a session as the messages that useChat shows, as GET
// /chat/{id}/messages does, for servers of one's own. While a run is at work its reply is
// left out. Whose session it is, is the caller's to check.
func LoadUIMessages(ctx context.Context, backend store.Backend, id string, opts UIMessageOptions) (*UIMessages, error) {
	switch {
	case opts.Offset < 0:
		return nil, session.Invalid("Offset", "is %d, and must not be negative", opts.Offset)
	case opts.Limit < 0 || opts.Limit > session.MaxPageSize:
		return nil, session.Invalid("Limit", "is %d, and must be from 0 to %d", opts.Limit, session.MaxPageSize)
	case opts.Limit == 0:
		opts.Limit = session.DefaultPageSize
	}
	return loadUIMessages(ctx, backend, id, &opts)
}

// LoadAllUIMessages is [LoadUIMessages] for all messages; Offset and Limit do not count.
func LoadAllUIMessages(ctx context.Context, backend store.Backend, id string, opts UIMessageOptions) ([]aisdk.Message, error) {
	opts.Offset, opts.Limit = 0, maxUIMessages
	page, err := loadUIMessages(ctx, backend, id, &opts)
	if err != nil {
		return nil, err
	}
	return page.Messages, nil
}

// maxUIMessages is more than a session can have.
const maxUIMessages = math.MaxInt32

func loadUIMessages(ctx context.Context, backend store.Backend, id string, opts *UIMessageOptions) (*UIMessages, error) {
	tenant := opts.Tenant
	if tenant == "" {
		tenant = session.DefaultTenant
	}
	told := opts.ErrorText
	if told == nil {
		told = func(err *session.Error) string { return wire.Explain(err.Code) }
	}
	c := &chats{
		sessions: backend.Sessions().Tenant(tenant), streams: backend.Streams().Tenant(tenant),
		whole: func(context.Context) (func(), error) { return func() {}, nil },
	}
	for range chatTries {
		shot, err := c.all(ctx, id)
		if err != nil {
			return nil, err
		}
		t, err := c.transcript(ctx, shot, false, told)
		if err != nil {
			return nil, err
		}
		t.GenerateID = opts.GenerateID
		running := t.Running
		t, skip, total := t.Page(opts.Offset, opts.Limit)
		if t.Waits, err = c.waits(ctx, shot.State, t.Messages); err != nil {
			return nil, err
		}
		cfg := aisdk.Config{Version: opts.Version, ErrorText: told, Options: opts.Options}
		out := &UIMessages{Messages: pageOf(aisdk.History(cfg, t), skip, opts.Limit), Total: total}
		out.HasMore = opts.Offset+len(out.Messages) < total
		if running { // what it holds does not change
			return out, nil
		}
		if same, err := c.unchanged(ctx, shot); err != nil || same {
			return out, err
		}
	}
	return nil, errChanges(id)
}
