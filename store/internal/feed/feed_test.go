package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// source returns one view per read; the last one repeats.
type source struct {
	views []*View
	asked []int64
}

func (s *source) after(_ context.Context, from int64, out *View) error {
	s.asked = append(s.asked, from)
	view := s.views[0]
	if len(s.views) > 1 {
		s.views = s.views[1:]
	}
	if view != nil {
		*out = *view
	}
	return nil
}

func chunks(first, last int64) (items []stream.Item) {
	for n := first; n <= last; n++ {
		items = append(items, stream.Item{Frame: stream.FrameChunk, Sequence: n, Chunk: &stream.Chunk{}})
	}
	return items
}

func view(incarnation string, status stream.Status, floor, last int64, items ...stream.Item) *View {
	return &View{Found: true, Info: stream.Info{Status: status, Floor: floor, Last: last}, Incarnation: incarnation, Items: items}
}

// TestRead gives a reader one view after the other, and wakes it whenever it
// waits.
func TestRead(t *testing.T) {
	t.Parallel()
	damage := errors.New("damage")
	broken := view("1", stream.StatusActive, 0, 3, chunks(1, 1)...)
	broken.Damage = damage
	for name, test := range map[string]struct {
		from  int64
		wait  bool
		views []*View
		want  []string
	}{
		"a stream that ended": {
			views: []*View{view("1", stream.StatusEnded, 0, 2, chunks(1, 2)...), view("1", stream.StatusEnded, 0, 2)},
			want:  []string{"chunk 1", "chunk 2", "end 2"},
		},
		"in parts, then live, then failed": {
			views: []*View{
				view("1", stream.StatusActive, 0, 3, chunks(1, 2)...), view("1", stream.StatusActive, 0, 3, chunks(3, 3)...),
				view("1", stream.StatusActive, 0, 3), view("1", stream.StatusActive, 0, 4, chunks(4, 4)...), view("1", stream.StatusFailed, 0, 4),
			},
			want: []string{"chunk 1", "chunk 2", "chunk 3", "caught-up 3", "chunk 4", "fail 4"},
		},
		"paused, from the middle": {
			from: 5, views: []*View{view("1", stream.StatusPaused, 3, 5)}, want: []string{"end 5"},
		},
		"before the floor": {
			from: 1, views: []*View{view("1", stream.StatusActive, 3, 5, chunks(4, 5)...)}, want: []string{"truncated 0"},
		},
		"beyond the end": {
			from: 9, views: []*View{view("1", stream.StatusActive, 0, 5)}, want: []string{"truncated 0"},
		},
		"no stream":           {views: []*View{nil}, want: []string{"state_not_found"}},
		"a negative sequence": {from: -1, views: []*View{nil}, want: []string{"validation_error"}},
		"waited for": {
			wait: true, views: []*View{nil, nil, view("1", stream.StatusEnded, 0, 0)}, want: []string{"end 0"},
		},
		"deleted while it was read": {
			wait: true, views: []*View{view("1", stream.StatusActive, 0, 1, chunks(1, 1)...), nil}, want: []string{"chunk 1", "state_not_found"},
		},
		"created again while it was read": {
			views: []*View{view("1", stream.StatusActive, 0, 1, chunks(1, 1)...), view("2", stream.StatusActive, 0, 1, chunks(1, 1)...)},
			want:  []string{"chunk 1", "state_not_found"},
		},
		"damaged": {views: []*View{broken}, want: []string{"chunk 1", "damage"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, from := NewHub[string](), &source{views: test.views}
			sub, end := hub.Subscribe("a")
			defer end()
			var got []string
			f := Feed{ID: "a", From: test.from, Wait: test.wait, After: func(ctx context.Context, at int64, view *View) error {
				hub.Notify("a")
				return from.after(ctx, at, view)
			}}
			for item, err := range f.Read(t.Context(), sub) {
				switch e, ok := errors.AsType[*session.Error](err); {
				case ok:
					got = append(got, string(e.Code))
				case err != nil:
					got = append(got, err.Error())
				default:
					got = append(got, fmt.Sprint(item.Frame, " ", item.Sequence))
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		poll time.Duration
		end  func(*Hub[string], context.CancelFunc)
		want error
	}{
		"with the context":     {0, func(_ *Hub[string], cancel context.CancelFunc) { cancel() }, context.Canceled},
		"with the hub":         {0, func(h *Hub[string], _ context.CancelFunc) { h.Close() }, session.ErrClosed},
		"for another look":     {time.Minute, nil, session.ErrNotFound},
		"with news of its own": {0, func(h *Hub[string], _ context.CancelFunc) { h.Notify("a") }, session.ErrNotFound},
		"with news about all":  {0, func(h *Hub[string], _ context.CancelFunc) { h.NotifyAll() }, session.ErrNotFound},
		"not with news of others": {0, func(h *Hub[string], cancel context.CancelFunc) {
			h.Notify("b")
			cancel()
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hub, from := NewHub[string](), &source{views: []*View{view("1", stream.StatusActive, 0, 0), nil}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				sub, end := hub.Subscribe("a")
				defer end()
				done := make(chan error)
				go func() {
					var last error
					for _, err := range (Feed{ID: "a", After: from.after, Poll: test.poll}).Read(ctx, sub) {
						last = err
					}
					done <- last
				}()
				synctest.Wait()
				if test.end != nil {
					test.end(hub, cancel)
				}
				if err := <-done; !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			})
		})
	}
}

func TestHubTellsOfReaders(t *testing.T) {
	t.Parallel()
	var got []string
	hub := NewHub[string]()
	hub.Added = func(key string, keys int) { got = append(got, fmt.Sprint("+", key, keys)) }
	hub.Removed = func(key string, keys int) { got = append(got, fmt.Sprint("-", key, keys)) }
	_, endA := hub.Subscribe("a")
	_, endAgain := hub.Subscribe("a")
	_, endB := hub.Subscribe("b")
	if n := len(hub.Keys()); n != 2 {
		t.Errorf("%d streams have readers", n)
	}
	endA()
	endB()
	endAgain()
	if want := []string{"+a1", "+b2", "-b1", "-a0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	closed := 0
	hub.Closed = func() { closed++ }
	if !hub.Close() || hub.Close() || closed != 1 {
		t.Error("a hub closes once")
	}
	_, end := hub.Subscribe("c")
	end()
	if n := len(hub.Keys()); n != 0 {
		t.Errorf("a closed hub has %d readers", n)
	}
}

// TestPublished wakes a reader with batches: it reads the store only if it cannot
// know that it has everything before them.
func TestPublished(t *testing.T) {
	t.Parallel()
	batch := func(incarnation string, first, last int64) *Batch {
		return &Batch{Incarnation: incarnation, First: first, Last: last, Bytes: 10, Items: func(after int64) ([]stream.Item, error) {
			return chunks(max(first, after+1), last), nil
		}}
	}
	many := func(hub *Hub[string]) {
		for n := range int64(maxBatches + 1) {
			hub.Publish("a", batch("1", n+3, n+3))
		}
	}
	large := func(hub *Hub[string]) {
		b := batch("1", 3, 3)
		b.Bytes = maxBatchBytes + 1
		hub.Publish("a", b)
	}
	broken := func(hub *Hub[string]) {
		b := batch("1", 3, 4)
		b.Items = func(int64) ([]stream.Item, error) { return nil, errors.New("damage") }
		hub.Publish("a", b)
	}
	for name, test := range map[string]struct {
		write func(*Hub[string])
		want  string
		reads int // of the store, after the first two
	}{
		"the next":                 {func(h *Hub[string]) { h.Publish("a", batch("1", 3, 4)) }, "3 4", 0},
		"two":                      {func(h *Hub[string]) { h.Publish("a", batch("1", 3, 3)); h.Publish("a", batch("1", 4, 5)) }, "3 4 5", 0},
		"one that was seen":        {func(h *Hub[string]) { h.Publish("a", batch("1", 1, 2)) }, "", 0},
		"one that was begun":       {func(h *Hub[string]) { h.Publish("a", batch("1", 2, 3)) }, "3", 0},
		"after others":             {func(h *Hub[string]) { h.Publish("a", batch("1", 4, 4)) }, "3 4", 1},
		"in another order":         {func(h *Hub[string]) { h.Publish("a", batch("1", 4, 4)); h.Publish("a", batch("1", 3, 3)) }, "3 4", 1},
		"of another stream":        {func(h *Hub[string]) { h.Publish("a", batch("2", 3, 4)) }, "3 4", 1},
		"before another change":    {func(h *Hub[string]) { h.Publish("a", batch("1", 3, 3)); h.Notify("a") }, "3 4", 1},
		"after another change":     {func(h *Hub[string]) { h.Notify("a"); h.Publish("a", batch("1", 3, 3)) }, "3 4", 1},
		"more than are kept":       {many, "3 4", 1},
		"more bytes than are kept": {large, "3 4", 1},
		"one that is damaged":      {broken, "3 4", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hub := NewHub[string]()
				from := &source{views: []*View{view("1", stream.StatusActive, 0, 2, chunks(1, 2)...), view("1", stream.StatusActive, 0, 2)}}
				var got []string
				ctx, cancel := context.WithCancel(t.Context())
				sub, end := hub.Subscribe("a")
				defer end()
				done := make(chan struct{})
				go func() {
					defer close(done)
					for item, err := range (Feed{ID: "a", After: from.after}).Read(ctx, sub) {
						if err == nil && item.Sequence > 2 {
							got = append(got, fmt.Sprint(item.Sequence))
						}
					}
				}()
				synctest.Wait()
				reads := len(from.asked)
				from.views = []*View{view("1", stream.StatusActive, 0, 4, chunks(3, 4)...), view("1", stream.StatusActive, 0, 4)}
				test.write(hub)
				synctest.Wait()
				cancel()
				<-done
				if text := strings.Join(got, " "); text != test.want {
					t.Errorf("got %q, want %q", text, test.want)
				}
				if n := len(from.asked) - reads; n != test.reads {
					t.Errorf("%d reads of the store, want %d", n, test.reads)
				}
			})
		})
	}
}
