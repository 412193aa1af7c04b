package server

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// buckets are the upper bounds of the duration histogram, in seconds.
var buckets = [...]float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// metrics counts requests and events. Its labels have few values: routes, statuses and
// outcomes, never a client's input.
type metrics struct {
	began time.Time

	mu        sync.Mutex
	requests  map[requestLabel]int64
	durations map[string]*histogram
	runs      int64
	outcomes  map[session.SubmitOutcome]int64
	limits    map[string]int64
}

type requestLabel struct {
	method, route string
	status        int
}

type histogram struct {
	counts [len(buckets) + 1]int64
	sum    float64
}

func newMetrics() *metrics {
	return &metrics{
		began: time.Now(), requests: map[requestLabel]int64{}, durations: map[string]*histogram{},
		outcomes: map[session.SubmitOutcome]int64{}, limits: map[string]int64{},
	}
}

func (m *metrics) request(method, route string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[requestLabel{method, route, status}]++
	h := m.durations[route]
	if h == nil {
		h = &histogram{}
		m.durations[route] = h
	}
	at, _ := slices.BinarySearch(buckets[:], took.Seconds())
	h.counts[at]++
	h.sum += took.Seconds()
}

func (m *metrics) started() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs++
}

func (m *metrics) submitted(outcome session.SubmitOutcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[outcome]++
}

func (m *metrics) limited(limit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limits[limit]++
}

// text returns the metrics, those of tasks included, in the text format of Prometheus.
func (m *metrics) text(streams int, tasks []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b bytes.Buffer
	describeMetric(&b, "helix_http_requests_total", "counter", "Requests by route and status.")
	for _, l := range slices.SortedFunc(maps.Keys(m.requests), func(a, b requestLabel) int {
		return cmp.Or(cmp.Compare(a.route, b.route), cmp.Compare(a.method, b.method), cmp.Compare(a.status, b.status))
	}) {
		fmt.Fprintf(&b, "helix_http_requests_total{method=%q,route=%q,status=\"%d\"} %d\n", l.method, l.route, l.status, m.requests[l])
	}
	describeMetric(&b, "helix_http_request_duration_seconds", "histogram", "How long requests took, streams included.")
	for _, route := range slices.Sorted(maps.Keys(m.durations)) {
		m.durations[route].text(&b, route)
	}
	describeMetric(&b, "helix_http_open_streams", "gauge", "Streams being read.")
	fmt.Fprintf(&b, "helix_http_open_streams %d\n", streams)
	describeMetric(&b, "helix_runs_started_total", "counter", "Runs that requests started.")
	fmt.Fprintf(&b, "helix_runs_started_total %d\n", m.runs)
	describeMetric(&b, "helix_submissions_total", "counter", "Answers to waiting calls, by outcome.")
	for _, outcome := range slices.Sorted(maps.Keys(m.outcomes)) {
		fmt.Fprintf(&b, "helix_submissions_total{outcome=%q} %d\n", outcome, m.outcomes[outcome])
	}
	describeMetric(&b, "helix_limited_total", "counter", "Requests that were refused because of a limit.")
	for _, limit := range slices.Sorted(maps.Keys(m.limits)) {
		fmt.Fprintf(&b, "helix_limited_total{limit=%q} %d\n", limit, m.limits[limit])
	}
	b.Write(tasks)
	m.process(&b)
	return b.Bytes()
}

func (h *histogram) text(b *bytes.Buffer, route string) {
	const name = "helix_http_request_duration_seconds"
	total := int64(0)
	for i, bound := range buckets {
		total += h.counts[i]
		fmt.Fprintf(b, "%s_bucket{route=%q,le=%q} %d\n", name, route, strconv.FormatFloat(bound, 'g', -1, 64), total)
	}
	total += h.counts[len(buckets)]
	fmt.Fprintf(b, "%s_bucket{route=%q,le=\"+Inf\"} %d\n", name, route, total)
	fmt.Fprintf(b, "%s_sum{route=%q} %s\n", name, route, strconv.FormatFloat(h.sum, 'g', -1, 64))
	fmt.Fprintf(b, "%s_count{route=%q} %d\n", name, route, total)
}

func (m *metrics) process(b *bytes.Buffer) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	describeMetric(b, "process_start_time_seconds", "gauge", "Start time of the server in seconds since 1970.")
	fmt.Fprintf(b, "process_start_time_seconds %.3f\n", float64(m.began.UnixMilli())/1000)
	describeMetric(b, "go_goroutines", "gauge", "Goroutines.")
	fmt.Fprintf(b, "go_goroutines %d\n", runtime.NumGoroutine())
	describeMetric(b, "go_memstats_heap_alloc_bytes", "gauge", "Bytes of heap in use.")
	fmt.Fprintf(b, "go_memstats_heap_alloc_bytes %d\n", memory.HeapAlloc)
	describeMetric(b, "go_memstats_sys_bytes", "gauge", "Bytes obtained from the system.")
	fmt.Fprintf(b, "go_memstats_sys_bytes %d\n", memory.Sys)
}

func describeMetric(b *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// mediaMetrics is the text format of Prometheus.
const mediaMetrics = "text/plain; version=0.0.4; charset=utf-8"

// showMetrics is for operators of the default tenant: the metrics cover the whole process,
// and an operator of another tenant may see only that tenant.
func (x *exchange) showMetrics() error {
	if !x.who.Operator || x.who.Tenant != session.DefaultTenant {
		return refuse(http.StatusForbidden, wire.CodeForbidden, "only operators of the default tenant may see this")
	}
	x.server.mu.Lock()
	streams := len(x.server.open)
	x.server.mu.Unlock()
	x.write(http.StatusOK, mediaMetrics, x.server.metrics.text(streams, x.taskMetrics()))
	return nil
}
