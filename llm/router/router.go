// Package router combines several models into one: when a model fails and a retry would not
// help or has not helped, it calls the next one.
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

// Router is a model with fallbacks. [llm.Response.Model] is the model that replied.
type Router struct {
	models []llm.Model
	rule   func(error) bool // nil for the default

	mu    sync.Mutex
	moved map[call]int // calls that failed in mid-reply, and the model to call next
	order []call       // of moved, oldest first
}

// call identifies a step's model call over its attempts.
type call struct {
	session, run string
	step         int
}

// remembered limits how many failed calls are tracked.
const remembered = 10_000

// New returns a router that calls first and, if it fails, the others in order.
func New(first llm.Model, others ...llm.Model) *Router {
	return &Router{models: append([]llm.Model{first}, others...), moved: map[call]int{}}
}

// When replaces the rule that decides which errors trigger the fallback at once. By default
// these are the errors that [FallsBack] reports, and, once the caller's retries are used
// up, temporary ones: a rate limit, an overload, an unreachable provider.
func (r *Router) When(falls func(error) bool) *Router {
	r.rule = falls
	return r
}

// falls reports whether to call the next model now, given the caller's remaining retries.
func (r *Router) falls(err error, retries int) bool {
	if r.rule != nil {
		return r.rule(err)
	}
	return FallsBack(err) || (retries == 0 && mayPass(err))
}

// mayPass reports whether an error is a provider's temporary fault.
func mayPass(err error) bool {
	failure, ok := errors.AsType[*session.Error](err)
	return ok && failure.Retryable && strings.HasPrefix(string(failure.Code), "provider_")
}

// FallsBack reports whether another model may succeed: the error is a provider's permanent
// fault. A content filter's verdict does not count, because it concerns the content, which
// the next model would see, too.
func FallsBack(err error) bool {
	failure, ok := errors.AsType[*session.Error](err)
	return ok && !failure.Retryable && failure.Code != session.CodeContentFilter && strings.HasPrefix(string(failure.Code), "provider_")
}

// Window implements [llm.Windowed]. It is the smallest window that is known, because a prompt
// must also fit the models that are called next.
func (r *Router) Window() int {
	window := 0
	for _, m := range r.models {
		if w := llm.WindowOf(m); w > 0 && (window == 0 || w < window) {
			window = w
		}
	}
	return window
}

// Count implements [llm.Counter] with the model that is called first.
func (r *Router) Count(ctx context.Context, request *llm.Request) (int, error) {
	return llm.CountTokens(ctx, r.models[0], request)
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
				r.move(key, at+1) // the next model gets the last attempt
			}
			return response, err
		}
		at++
		if said {
			// The partial reply must be discarded before another model starts. The caller does
			// so when it retries, which requires a retryable error.
			r.move(key, at)
			return response, again(err)
		}
	}
}

// again returns an error that makes the caller retry, so that another model gets the same
// call.
func again(err error) error {
	failure := *session.AsError(err)
	failure.Retryable = true
	return &failure
}

// next returns the model to start with.
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
