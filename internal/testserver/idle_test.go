package testserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestServersCloseNoIdleConnections checks that [Main] protects a test's idle connection when another test's server closes.
func TestServersCloseNoIdleConnections(t *testing.T) {
	t.Parallel()
	tellCaller := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) })
	mine := httptest.NewServer(tellCaller)
	defer mine.Close()
	first := getText(t, mine.URL)
	httptest.NewServer(tellCaller).Close()
	if second := getText(t, mine.URL); second != first {
		t.Errorf("the connection from %s was closed, the next one is from %s", first, second)
	}
}

func getText(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
