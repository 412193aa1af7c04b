// Command server plays the model providers, and a proxy in front of them, in a process of its own. It prints where it
// listens as one line of JSON, then each request that it answers as another, and ends when its standard input does.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// host is the name in the server's certificate. It exists nowhere, so that only the proxy can find it.
const host = "model.example"

// addresses is the first line of output.
type addresses struct {
	HTTP  string `json:"http"`
	Proxy string `json:"proxy"`
	// Certificate is the server's own in PEM, for requests to https://model.example through the proxy.
	Certificate string `json:"certificate"`
}

// request is a line of output.
type request struct {
	Via    string      `json:"via"` // direct, proxy or tunnel
	Method string      `json:"method"`
	Host   string      `json:"host"`
	URI    string      `json:"uri"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	certificate, encoded, err := selfSigned()
	if err != nil {
		return err
	}
	var listeners [3]net.Listener // plain, proxy, TLS
	for i := range listeners {
		if listeners[i], err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	log := &lines{to: json.NewEncoder(os.Stdout)}
	log.write(addresses{HTTP: listeners[0].Addr().String(), Proxy: listeners[1].Addr().String(), Certificate: encoded})
	secure := listeners[2].Addr().String()
	servers := []*http.Server{
		{Handler: log.answering("direct")},
		{Handler: proxy(log.answering("proxy"), secure)},
		{Handler: log.answering("tunnel"), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}},
	}
	var all sync.WaitGroup
	for i, server := range servers {
		server.ReadHeaderTimeout = 10 * time.Second
		all.Go(func() {
			if i == len(servers)-1 {
				_ = server.ServeTLS(listeners[i], "", "")
				return
			}
			_ = server.Serve(listeners[i])
		})
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	for _, server := range servers {
		_ = server.Close()
	}
	all.Wait()
	return err
}

// lines writes values as lines of JSON.
type lines struct {
	mu sync.Mutex
	to *json.Encoder
}

func (l *lines) write(v any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.to.Encode(v)
}

func (l *lines) answering(via string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			return
		}
		l.write(request{via, r.Method, r.Host, r.RequestURI, r.Header, string(body)})
		if r.Header.Get("X-Overloaded") != "" {
			w.Header().Set("Retry-After", "3")
			w.Header().Set("Request-Id", "req_529")
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, reply(r.URL.Path))
	})
}

// reply says "Yes." on the wire that a path belongs to.
func reply(path string) string {
	switch {
	case strings.HasSuffix(path, "/responses"):
		return `data: {"type":"response.output_text.delta","delta":"Yes."}` + "\n\n" +
			`data: {"type":"response.completed","response":{"status":"completed","model":"m"}}` + "\n\n"
	case strings.HasSuffix(path, "/chat/completions"):
		return `data: {"model":"m","choices":[{"delta":{"content":"Yes."},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	case strings.HasSuffix(path, "/v1/messages"):
		return "event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Yes."}}` + "\n\n" +
			"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}` + "\n\n" +
			"event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"
	}
	return `data: {"candidates":[{"content":{"parts":[{"text":"Yes."}]},"finishReason":"STOP"}]}` + "\n\n"
}

// proxy answers plain requests itself and tunnels the others to the TLS server, whatever host they ask for.
func proxy(plain http.Handler, secure string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			plain.ServeHTTP(w, r)
			return
		}
		up, err := new(net.Dialer).DialContext(r.Context(), "tcp", secure)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer up.Close()
		down, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer down.Close()
		_, _ = io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n")
		var both sync.WaitGroup
		both.Go(func() { // the buffer may hold the first bytes already
			_, _ = io.Copy(up, buffered)
			_ = up.Close()
		})
		_, _ = io.Copy(down, up)
		_ = down.Close()
		both.Wait()
	})
}

func selfSigned() (certificate tls.Certificate, encoded string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return certificate, "", err
	}
	encoded = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, encoded, nil
}
