// Command bench measures what Helix costs, each figure beside the floor of the
// same run: the least that any design could do with the same facts, over the same
// driver and settings. Lines whose name ends in -bare have a different floor: one
// durable transaction that changes one row.
//
// Stores that need a server get a durable one of their own, unless
// HELIX_BENCH_POSTGRES or HELIX_BENCH_REDIS names one that is running, and so does
// Temporal with HELIX_BENCH_TEMPORAL.
//
//	go run ./bench             a table
//	go run ./bench -json       one object per line
//	go run ./bench -run step   only what matches
//	go run ./bench -quick      fewer samples
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
)

// row is one figure.
type row struct {
	Bench   string  `json:"bench"`
	Store   string  `json:"store"`
	Runtime string  `json:"runtime"`
	N       int     `json:"n"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
	// Floor and Ratio are 0 where there is no floor to compare with.
	Floor float64 `json:"floor"`
	Ratio float64 `json:"ratio"`
}

// with adds the floor of the same run.
func (r row) with(floor float64) row {
	r.Floor = floor
	if floor > 0 {
		r.Ratio = r.Value / floor
	}
	return r
}

// bench is one measurement on one store.
type bench struct {
	name string
	// apart runs it in a process of its own, for figures of a whole process.
	apart bool
	run   func(ctx context.Context, k kind, quick bool) ([]row, error)
}

// holds is how long heartbeats are measured.
var holds = 20 * time.Second

var benches = []bench{
	{"step", false, steps(effect)},
	{"step-growing-state", false, steps(growingState)},
	{"step-read-only", false, steps(reading)},
	{"flat", false, flat(effect)},
	{"flat-growing-state", false, flat(growingState)},
	{"flat-context", false, flat(bounded)},
	{"open-context", false, open},
	{"commit", false, commits},
	{"commit-16", false, sharedCommits},
	{"loop", false, loop},
	{"concurrent", true, concurrent},
	{"resume", false, resume},
	{"takeover", false, takeover},
	{"stop-elsewhere", false, stopElsewhere},
	{"killed", false, killed},
	{"held", false, held},
	{"restarted-0s", false, restarted(0)},
	{"restarted-3s", false, restarted(3 * time.Second)},
	{"restarted-30s", false, restarted(30 * time.Second)},
	{"stream", false, streams},
	{"fanout", false, fanout},
	{"chats", true, chats},
	{"first-token", false, firstTokens},
	{"chat-start", false, chatStarts},
	{"runtime-step", false, runtimes},
}

func main() { os.Exit(run()) }

// run is the program; it returns the exit code.
func run() int {
	asJSON := flag.Bool("json", false, "print one JSON object per line")
	match := flag.String("run", "", "run only benches whose bench/store matches this regular expression")
	quick := flag.Bool("quick", false, "take fewer samples")
	here := flag.Bool("here", false, "run everything in this process")
	victim := flag.String("victim", "", "be a process to be killed, with a number of runs, on a store, given as kind, name and URL; the bench itself uses it")
	flag.DurationVar(&holds, "hold", holds, "for how long the bench held measures heartbeats")
	flag.Parse()
	if *victim != "" {
		fmt.Fprintln(os.Stderr, "bench: the process to kill:", beVictim(*victim))
		return 1
	}
	pattern, err := regexp.Compile(*match)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: -run:", err)
		return 2
	}
	// What was started is stopped in an orderly way on Ctrl-C; a second one is final.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	servers := newServers()
	out := newPrinter(*asJSON)
	ok := true
	for _, b := range benches {
		for _, k := range kinds(servers) {
			if ctx.Err() != nil || !pattern.MatchString(b.name+"/"+k.name) {
				continue
			}
			rows, err := measure(ctx, b, k, servers, *quick, *here)
			if err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s on %s: %v\n", b.name, k.name, err)
				ok = false
				continue
			}
			out.print(rows)
		}
	}
	out.close()
	if err := servers.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		ok = false
	}
	if !ok || ctx.Err() != nil {
		return 1
	}
	return 0
}

func measure(ctx context.Context, b bench, k kind, servers *servers, quick, here bool) ([]row, error) {
	if !b.apart || here {
		return b.run(ctx, k, quick)
	}
	if _, err := k.server.get(ctx); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"-json", "-here", "-run", "^" + regexp.QuoteMeta(b.name+"/"+k.name) + "$"}
	if quick {
		args = append(args, "-quick")
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = servers.environ()
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var rows []row
	for dec := json.NewDecoder(stdout); ; {
		var r row
		if err := dec.Decode(&r); err != nil {
			break // Wait reports whether it was a regular end
		}
		rows = append(rows, r)
	}
	return rows, cmd.Wait()
}

// printer prints rows as they come.
type printer struct {
	asJSON bool
	table  *tabwriter.Writer
}

func newPrinter(asJSON bool) *printer {
	p := &printer{asJSON: asJSON}
	if !asJSON {
		p.table = tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(p.table, "bench\tstore\truntime\tn\tvalue\tunit\tfloor\tratio\t")
	}
	return p
}

func (p *printer) print(rows []row) {
	for _, r := range rows {
		if p.asJSON {
			raw, _ := json.Marshal(r) // a row always encodes
			fmt.Println(string(raw))
			continue
		}
		floor, ratio := "", ""
		if r.Floor > 0 {
			floor, ratio = fmt.Sprintf("%.4g", r.Floor), fmt.Sprintf("%.2f", r.Ratio)
		}
		fmt.Fprintf(p.table, "%s\t%s\t%s\t%d\t%.4g\t%s\t%s\t%s\t\n", r.Bench, r.Store, r.Runtime, r.N, r.Value, r.Unit, floor, ratio)
	}
}

func (p *printer) close() {
	if p.table != nil {
		_ = p.table.Flush() // an error on standard output cannot be reported
	}
}

// percentile is the p-th percentile of samples, in microseconds.
func percentile(samples []time.Duration, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	i := min(len(sorted)-1, int(p/100*float64(len(sorted))))
	return float64(sorted[i].Nanoseconds()) / 1000
}
