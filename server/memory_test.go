package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
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

// maxGrowth is by how much a server's heap may grow for one user at work.
const maxGrowth = 200_000_000

// Twelve answers at once to a call with a large input, each with an input of its own of as
// many values as fit.
func TestMemoryOfAnswers(t *testing.T) {
	t.Parallel()
	url, heap := process(t)
	status, answer := request(t, http.MethodPost, url+"/start", userToken(0), []byte(`{"sessionId":"c","agentType":"signer","message":"Sign!"}`))
	if status != http.StatusOK {
		t.Fatalf("answered %d: %s", status, answer)
	}
	waits := ended(t, url, "c").Pending
	if len(waits) != 1 {
		t.Fatalf("%d calls wait", len(waits))
	}
	body := padded(largeBody, fmt.Sprintf(`{"id":"c","messages":[{"role":"assistant","parts":[{"type":"tool-sign","toolCallId":%q,"state":"approval-responded",`+
		`"approval":{"id":%q,"approved":true},"input":{"lists":[`, waits[0].CallID, waits[0].ApprovalID), `[]`, `]}}]}]}`)
	idle := heap()
	var (
		all     sync.WaitGroup
		refused atomic.Int32
	)
	for range 12 {
		all.Go(func() {
			switch status, answer := request(t, http.MethodPost, url+"/chat", userToken(0), body); {
			case status == http.StatusBadRequest && strings.Contains(answer, "does not show"):
				refused.Add(1)
			case status != http.StatusServiceUnavailable: // because of the other large ones
				t.Errorf("answered %d: %s", status, answer)
			}
		})
	}
	all.Wait()
	if refused.Load() < 4 {
		t.Errorf("%d of 12 answers were compared", refused.Load())
	}
	checkGrowth(t, heap()-idle)
}

// A model that sends one event of 30 MB, or a call with an argument of 20 MB.
func TestMemoryOfReplies(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"listener": string(session.CodeMalformed),
		"scribe":   "the arguments of write have 19999997 bytes, and there is room for 1048576 in this reply",
	} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			url, heap := process(t)
			idle := heap()
			status, answer := request(t, http.MethodPost, url+"/start", userToken(0), []byte(`{"sessionId":"c","agentType":"`+agent+`","message":"Go!"}`))
			if status != http.StatusOK {
				t.Fatalf("answered %d: %s", status, answer)
			}
			done := ended(t, url, "c")
			if said := fmt.Sprint(done.Text, done.Error); !strings.Contains(said, want) {
				t.Errorf("it says %q", said)
			}
			checkGrowth(t, heap()-idle)
		})
	}
}

func checkGrowth(t *testing.T, growth int64) {
	t.Helper()
	t.Logf("%d MB more than when it was idle", growth/1e6)
	if growth > maxGrowth {
		t.Errorf("at its peak the heap has %d bytes more than when the server is idle", growth)
	}
}

// ended waits until a session does not run.
func ended(t *testing.T, url, id string) (status wire.Status) {
	t.Helper()
	eventually.Poll(t, "the run ends", func() bool {
		code, answer := request(t, http.MethodGet, url+"/status?sessionId="+id, userToken(0), nil)
		if code != http.StatusOK {
			t.Fatalf("answered %d: %s", code, answer)
		}
		status = decodeAs[wire.Status](t, answer)
		return status.Activity != session.ActivityRunning && status.Activity != session.ActivityNew
	})
	return status
}

func upload(t *testing.T, address, token string, body []byte) (status int) {
	status, _ = request(t, http.MethodPost, address, token, body)
	return status
}

func request(t *testing.T, method, address, token string, body []byte) (status int, answer string) {
	r, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r.Header.Set("Content-Type", wire.ContentJSON)
	r.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}
