package server_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/server/wire"
)

// padded is a list of the same thing between two texts, of about so many bytes in all.
func padded(size int, before, item, after string) []byte {
	n := (size - len(before) - len(after)) / (len(item) + 1)
	return []byte(before + strings.Repeat(item+",", n-1) + item + after)
}

// Twenty large bodies at once, made of as many small things as fit, have a server's heap
// grow by little more than the bodies, whether they are one user's or twenty users'.
func TestMemoryOfLargeBodies(t *testing.T) {
	t.Parallel()
	const size = largeBody
	message := `{"agentType":"echo","message":[{"role":"user","parts":[`
	chat := `{"id":"c","messages":[`
	has := testshare.Has(t, 4) // half of the bodies, each one user's or twenty users'
	for i, c := range []struct {
		name, path string
		body       []byte
	}{
		{"empty parts", "/start", padded(size, message, `{}`, `]}]}`)},
		{"small parts", "/start", padded(size, message, `{"kind":"text","text":"x"}`, `]}]}`)},
		{"empty messages", "/start", padded(size, `{"agentType":"echo","message":[`, `{}`, `]}`)},
		{"empty messages of a chat", "/chat", padded(size, chat, `{}`, `]}`)},
		{"small messages of a chat", "/chat", padded(size, chat, `{"role":"user"}`, `]}`)},
		{"empty parts of a chat", "/chat", padded(size, chat+`{"role":"user","parts":[`, `{}`, `]}]}`)},
		{"small parts of a chat", "/chat", padded(size, chat+`{"role":"user","parts":[`, `{"type":"text","text":""}`, `]}]}`)},
		{"answers of a chat", "/chat", padded(size, chat+`{"role":"assistant","parts":[`, `{"type":"tool-x","state":"output-error"}`, `]}]}`)},
		{"fields of a chat", "/chat", padded(size, `{"id":"c","other":[`, `{"a":[]}`, `]}`)},
		{"unknown fields", "/start", padded(size, `{`, `"a":1`, `}`)},
		{"tags", "/start", padded(size, `{"tags":[`, `"a"`, `]}`)},
		{"metadata", "/chat", padded(size, `{"id":"c","metadata":{`, `"a":""`, `}}`)},
		{"state", "/start", padded(size, `{"state":{`, `"a":1`, `}}`)},
		{"input that was seen", "/submit-tool-result", padded(size/8, `{"sessionId":"a","toolCallId":"c","result":1,"seen":{"toolName":"t","input":[`, `{}`, `]}}`)},
		{"broken JSON", "/start", padded(size, `{"agentType":"echo","message":`, `[`, ``)},
	} {
		for j, sender := range []struct {
			name  string
			token func(int) string
		}{
			{"one user", func(int) string { return userToken(0) }}, {"twenty users", userToken},
		} {
			if !has(i + j) {
				continue
			}
			t.Run(c.name+" of "+sender.name, func(t *testing.T) {
				url, heap := process(t)
				if status := upload(t, url+c.path, userToken(0), []byte(`{}`)); status != http.StatusBadRequest { // it is warm
					t.Fatalf("nothing is answered %d", status)
				}
				idle := heap()
				var all sync.WaitGroup
				for i := range users {
					all.Go(func() {
						switch status := upload(t, url+c.path, sender.token(i), c.body); status {
						case http.StatusBadRequest, http.StatusNotFound, http.StatusServiceUnavailable:
						default:
							t.Errorf("answered %d", status)
						}
					})
				}
				all.Wait()
				peak := heap()
				t.Logf("%d MB above %d MB", (peak-idle)/1e6, idle/1e6)
				if peak-idle > largeHeap {
					t.Errorf("at its peak the heap has %d bytes more than when the server is idle", peak-idle)
				}
			})
		}
	}
}

func upload(t *testing.T, address, token string, body []byte) (status int) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	r.Header.Set("Content-Type", wire.ContentJSON)
	r.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}
