package testserver

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"testing"
)

// TestTemporalRemembers checks that a server that was killed continues its workflows.
func TestTemporalRemembers(t *testing.T) {
	t.Parallel()
	s := StartTemporal(t)
	const workflow = "/api/v1/namespaces/default/workflows/w"
	askTemporal(t, s, http.MethodPost, workflow, map[string]any{
		"workflowType": map[string]string{"name": "x"}, "taskQueue": map[string]string{"name": "q"}, "requestId": "r",
	}, nil)
	s.Kill()
	s.Start()
	var found struct {
		Info struct{ Status string } `json:"workflowExecutionInfo"`
	}
	askTemporal(t, s, http.MethodGet, workflow, nil, &found)
	if found.Info.Status != "WORKFLOW_EXECUTION_STATUS_RUNNING" {
		t.Errorf("the workflow is %q", found.Info.Status)
	}
}

// askTemporal asks a server by HTTP.
func askTemporal(t *testing.T, s *Server, method, path string, body, answer any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.server.place.port+secondPort))
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, path, response.Status)
	}
	if answer == nil {
		return
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}
