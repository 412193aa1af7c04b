// Command bench measures what Helix costs, each figure beside the floor of the
// same run: the bare write of the same rows with the same driver and settings.
//
//	go run ./bench             a table
//	go run ./bench -json       one object per line
//	go run ./bench -run step   only what matches
//	go run ./bench -quick      fewer samples
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/sqlite"
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

// backend is a store to measure.
type backend struct {
	name string
	// open makes a fresh one in dir, which is empty.
	open  func(dir string) (store.Backend, error)
	floor func(dir string) (floor, error)
}

func backends() []backend {
	return []backend{
		{"memory", func(string) (store.Backend, error) { return memory.New(memory.Config{}), nil }, newMemoryFloor},
		{"sqlite", func(dir string) (store.Backend, error) { return sqlite.Open(dir + "/helix.db") }, newSQLiteFloor},
	}
}

// bench is one measurement on one store.
type bench struct {
	name string
	// apart runs it in a process of its own, for figures of a whole process.
	apart bool
	run   func(ctx context.Context, b backend, quick bool) ([]row, error)
}

var benches = []bench{
	{"step", false, func(ctx context.Context, b backend, quick bool) ([]row, error) { return steps(ctx, b, quick, false) }},
	{"step-growing-state", false, func(ctx context.Context, b backend, quick bool) ([]row, error) { return steps(ctx, b, quick, true) }},
	{"flat", false, func(ctx context.Context, b backend, quick bool) ([]row, error) { return flat(ctx, b, quick, false) }},
	{"flat-growing-state", false, func(ctx context.Context, b backend, quick bool) ([]row, error) { return flat(ctx, b, quick, true) }},
	{"commit", false, commits},
	{"loop", false, loop},
	{"concurrent", true, concurrent},
	{"resume", false, resume},
	{"takeover", false, takeover},
	{"stream", false, streams},
	{"fanout", false, fanout},
}

func main() { os.Exit(run()) }

// run is the program; it returns the exit code.
func run() int {
	asJSON := flag.Bool("json", false, "print one JSON object per line")
	match := flag.String("run", "", "run only benches whose bench/store matches this regular expression")
	quick := flag.Bool("quick", false, "take fewer samples")
	here := flag.Bool("here", false, "run everything in this process")
	flag.Parse()
	pattern, err := regexp.Compile(*match)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: -run:", err)
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	out := newPrinter(*asJSON)
	failed := false
	for _, b := range benches {
		for _, s := range backends() {
			if !pattern.MatchString(b.name + "/" + s.name) {
				continue
			}
			rows, err := measure(ctx, b, s, *quick, *here)
			if err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s on %s: %v\n", b.name, s.name, err)
				failed = true
				continue
			}
			out.print(rows)
		}
	}
	out.close()
	if failed {
		return 1
	}
	return 0
}

func measure(ctx context.Context, b bench, s backend, quick, here bool) ([]row, error) {
	if !b.apart || here {
		return b.run(ctx, s, quick)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"-json", "-here", "-run", "^" + regexp.QuoteMeta(b.name+"/"+s.name) + "$"}
	if quick {
		args = append(args, "-quick")
	}
	cmd := exec.CommandContext(ctx, self, args...)
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
			break // the end; whether it was one that it should be, Wait tells
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
		_ = p.table.Flush() // standard output: nobody to tell
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

// inDir calls do with a directory of its own, removed afterwards.
func inDir(do func(dir string) error) error {
	dir, err := os.MkdirTemp("", "helix-bench-")
	if err != nil {
		return err
	}
	return errors.Join(do(dir), os.RemoveAll(dir))
}
