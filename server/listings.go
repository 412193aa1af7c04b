package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/server/wire"
)

const (
	// listedFor is how long an extension is not asked again for its tools.
	listedFor = 5 * time.Second
	// listPatience is how long a request waits for the extensions that are being asked.
	listPatience = 2 * time.Second
	// listLimit is after how long an extension that is asked is told to give up.
	listLimit = 10 * time.Second
)

// listings are the tools that extensions list outside of turns. An extension is asked once
// at a time and not for every request: asking may be expensive, and it may not answer. What
// it lists is for everybody, so it is not asked on behalf of the request.
type listings struct {
	closing <-chan struct{} // closed when nobody needs an answer any more

	mu sync.Mutex
	of map[listingKey]*listing // of those that were offered last
}

// listingKey names an extension of an agent. The agents themselves may be built anew for
// every request.
type listingKey struct{ agent, extension string }

// listing is what one extension lists.
type listing struct {
	tools    []wire.Tool   // what it listed last
	since    time.Time     // when it was asked last
	answered chan struct{} // closed when it has returned; nil before it is asked
	failed   bool          // it failed or was late when it was asked last, which was logged
}

// list returns the tools that the extensions of each agent list. An extension that is late
// or fails has those that it listed before.
func (l *listings) list(ctx context.Context, agents []*helix.Agent, log *slog.Logger) [][]wire.Tool {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	out := make([][]wire.Tool, len(agents))
	for _, a := range l.ask(agents, log) {
		if time.Since(a.since) < listPatience {
			select {
			case <-a.answered:
			case <-ctx.Done():
			}
		}
		out[a.of] = append(out[a.of], l.known(ctx, &a, log)...)
	}
	return out
}

// asking is an extension that was asked.
type asking struct {
	*listing
	of        int // the index of its agent
	agent     *helix.Agent
	extension helix.Extension
	since     time.Time
	answered  chan struct{}
}

// known returns what an extension has listed. It logs one that has not answered in time,
// once.
func (l *listings) known(ctx context.Context, a *asking, log *slog.Logger) []wire.Tool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !closed(a.answered) && time.Since(a.since) >= listPatience {
		a.fail(ctx, a.agent, a.extension, fmt.Errorf("it did not return within %s", listPatience), log)
	}
	return a.tools
}

func (one *listing) fail(ctx context.Context, agent *helix.Agent, extension helix.Extension, err error, log *slog.Logger) {
	if !one.failed {
		one.failed = true
		log.WarnContext(ctx, "extension.tools_not_listed", "agent", agent.Name, "extension", extension.Name(), "error", err)
	}
}

// ask asks the extensions of agents that were not asked lately.
func (l *listings) ask(agents []*helix.Agent, log *slog.Logger) []asking {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := make(map[listingKey]*listing, len(l.of))
	var out []asking
	for i, agent := range agents {
		for _, extension := range agent.Extensions {
			if _, ok := extension.(helix.ToolLister); !ok {
				continue
			}
			name := listingKey{agent.Name, extension.Name()}
			one := l.of[name]
			if one == nil {
				one = &listing{}
			}
			of[name] = one
			if (one.answered == nil || closed(one.answered)) && time.Since(one.since) >= listedFor {
				one.since, one.answered = time.Now(), make(chan struct{})
				go l.update(one, agent, extension, log)
			}
			out = append(out, asking{one, i, agent, extension, one.since, one.answered})
		}
	}
	l.of = of // without agents that are no longer offered
	return out
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// update asks an extension, until the server closes.
func (l *listings) update(one *listing, agent *helix.Agent, extension helix.Extension, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), listLimit)
	defer cancel()
	go func() {
		select {
		case <-l.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	tools, err := toolsOf(ctx, extension)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		one.fail(ctx, agent, extension, err, log)
	} else {
		one.tools, one.failed = tools, false
	}
	close(one.answered)
}

// toolsOf lists the tools of an extension. A panic is an error.
func toolsOf(ctx context.Context, extension helix.Extension) (out []wire.Tool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	tools, err := engine.ListTools(ctx, extension)
	if err != nil {
		return nil, err
	}
	return describeTools(tools)
}
