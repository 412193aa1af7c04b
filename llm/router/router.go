// Package router makes one model of several: when one cannot answer, and asking it
// again would not help or has not helped, the next is asked.
package router

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Router is a model that falls back on others. Which one answered is in
// [llm.Response.Model].
type Router struct {
	models []llm.Model
	rule   func(error) bool // nil for the default

	mu    sync.Mutex
	moved map[call]int // calls that failed in mid-reply, and the model to ask next
	order []call       // of moved, oldest first
}

// call identifies a step's model call over its attempts.
type call struct {
	session, run string
	step         int
}

// remembered bounds how many failed calls are kept in mind.
const remembered = 10_000

// New makes a router that asks first, and, where that cannot answer, the others in
// turn.
func New(first llm.Model, others ...llm.Model) *Router {
	return &Router{models: append([]llm.Model{first}, others...), moved: map[call]int{}}
}

// When replaces the rule of which failures make a router fall back at once. Without it
// those do that [FallsBack] tells, and those that may pass once the caller's retries are
// used up: a rate limit, an overload, a provider that cannot be reached.
func (r *Router) When(falls func(error) bool) *Router {
	r.rule = falls
	return r
}

// falls reports whether the next model is asked now, where the caller would ask so often
// again.
func (r *Router) falls(err error, retries int) bool {
	if r.rule != nil {
		return r.rule(err)
	}
	return FallsBack(err) || (retries == 0 && mayPass(err))
}

// mayPass reports a provider's fault that asking again may mend.
func mayPass(err error) bool {
	failure, ok := errors.AsType[*session.Error](err)
	return ok && failure.Retryable && strings.HasPrefix(string(failure.Code), "provider_")
}

// FallsBack reports whether another model may do better: a provider's fault that
// asking again would not mend. A content filter's verdict is about the content, and
// the next model may not see it otherwise.
func FallsBack(err error) bool {
	failure, ok := errors.AsType[*session.Error](err)
	return ok && !failure.Retryable && failure.Code != session.CodeContentFilter && strings.HasPrefix(string(failure.Code), "provider_")
}

// Generate implements [llm.Model].
func (r *Router) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	key := call{request.SessionID, request.RunID, request.Step}
	at := r.next(key)
	for {
		said := false
		response, err := r.models[at].Generate(ctx, request, func(d llm.Delta) {
			said = true
			emit(d)
		})
		if err == nil || ctx.Err() != nil || at == len(r.models)-1 {
			return response, err
		}
		if !r.falls(err, request.Retries) {
			if r.rule == nil && request.Retries == 1 && mayPass(err) {
				r.move(key, at+1) // the last attempt is the next model's
			}
			return response, err
		}
		at++
		if said {
			// What was said has to be taken back before another begins. The caller does that
			// when it tries again, which it does with what can be retried.
			r.move(key, at)
			return response, again(err)
		}
	}
}

// again is a failure after which the same call is answered by another model.
func again(err error) error {
	failure := *session.AsError(err)
	failure.Retryable = true
	return &failure
}

// next is the model to begin with.
func (r *Router) next(key call) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.moved[key]
	if ok {
		delete(r.moved, key)
		r.order = slices.DeleteFunc(r.order, func(k call) bool { return k == key })
	}
	return at
}

func (r *Router) move(key call, to int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) == remembered {
		delete(r.moved, r.order[0])
		r.order = r.order[1:]
	}
	if _, ok := r.moved[key]; !ok {
		r.order = append(r.order, key)
	}
	r.moved[key] = to
}
