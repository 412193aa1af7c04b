package server_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
)

// counter is a model that counts, one token at a time.
type counter int

func (c counter) Generate(_ context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	var text strings.Builder
	for i := range int(c) {
		token := strconv.Itoa(i) + " "
		text.WriteString(token)
		emit(llm.Delta{Kind: llm.DeltaText, Text: token})
	}
	return &llm.Response{Parts: []session.Part{session.Text(text.String())}, Finish: llm.FinishStop}, nil
}

// Many chats at once on a store that is shared: each gets every token of its reply
// once, in order.
func TestManyChats(t *testing.T) {
	t.Parallel()
	const chats, tokens = 50, 50
	var want strings.Builder
	for i := range tokens {
		fmt.Fprint(&want, i, " ")
	}
	for _, kind := range testbackend.Shared() {
		if !slices.Contains([]string{"sqlite", "postgres"}, kind.Name) {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, kind.Open(t), []*helix.Agent{{Name: "counter", Model: counter(tokens)}}, nil)
			var all sync.WaitGroup
			for i := range chats {
				p := s.page(fmt.Sprintf("chat-%d", i))
				p.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "count"}}}}
				body := p.body(aisdk.TriggerSubmit, "")
				all.Go(func() {
					status, raw := p.try(http.MethodPost, "/chat?sdk=7", body)
					events, _ := parseEvents([]byte(raw))
					var got strings.Builder
					for _, e := range events {
						if e.data == aisdk.Done {
							continue
						}
						if c := decodeAs[aisdk.Chunk](t, e.data); c.Type == aisdk.TypeTextDelta {
							got.WriteString(c.Delta)
						}
					}
					if status != http.StatusOK || got.String() != want.String() || events[len(events)-1].data != aisdk.Done {
						t.Errorf("%s is answered %d: %q", p.id, status, got.String())
					}
				})
			}
			all.Wait()
		})
	}
}
