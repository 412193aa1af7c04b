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
	// Total is the number of messages of the chat. HasMore reports whether more follow.
	Total   int
	HasMore bool
}

// UIMessageOptions are the options of [LoadUIMessages].
type UIMessageOptions struct {
	// Tenant is the tenant of the session. Defaults to [session.DefaultTenant].
	Tenant string
	// Offset is the index of the first message; the oldest has 0. Limit is the maximum
	// number of messages. It defaults to 50 and is at most 200.
	Offset, Limit int
	// Version is the version of the AI SDK that reads the messages. Defaults to
	// [aisdk.Default].
	Version aisdk.Version
	// GenerateID, if set, returns the id of a message, given its index in the chat. By
	// default the ids are those with which pages ask the server to regenerate a reply or
	// replace a message.
	GenerateID func(index int, m *aisdk.Message) string
	// ErrorText returns the text for a failed run. Defaults to [wire.Explain].
	ErrorText func(*session.Error) string
	aisdk.Options
}

// LoadUIMessages returns a page of a session as the messages that useChat shows, as GET
// /chat/{id}/messages does, for your own server. It omits the reply of a run in progress.
// The caller checks who may see the session.
func LoadUIMessages(ctx context.Context, backend store.Backend, id string, opts UIMessageOptions) (*UIMessages, error) {
	switch {
	case opts.Offset < 0:
		return nil, session.Invalid("Offset", "is %d, but must not be negative", opts.Offset)
	case opts.Limit < 0 || opts.Limit > session.MaxPageSize:
		return nil, session.Invalid("Limit", "is %d, but must be from 0 to %d", opts.Limit, session.MaxPageSize)
	case opts.Limit == 0:
		opts.Limit = session.DefaultPageSize
	}
	return loadUIMessages(ctx, backend, id, &opts)
}

// LoadAllUIMessages is [LoadUIMessages] for all messages; it ignores Offset and Limit.
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
		if running { // its content does not change
			return out, nil
		}
		if same, err := c.unchanged(ctx, shot); err != nil || same {
			return out, err
		}
	}
	return nil, errChanges(id)
}
