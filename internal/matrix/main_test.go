package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMatrix(t *testing.T) {
	t.Parallel()
	line := func(action, pkg, test, output string) string {
		e := event{Action: action, Package: "x/runtime/" + pkg, Output: output}
		if test != "" {
			e.Test = "TestScenarios/" + test
		}
		if strings.HasPrefix(action, "build") {
			e.ImportPath, e.Package = e.Package, ""
		}
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw) + "\n"
	}
	end := func(action, pkg string) string { return line(action, pkg, "", "") }
	one := line("pass", "local", "memory/tools/one", "") + line("run", "dbos", "memory/tools/one", "") + line("pass", "dbos", "memory/tools/one", "")
	same := one + end("pass", "local") + end("pass", "dbos")
	two := "x/runtime/dbos TestScenarios/memory/tools/two"
	for _, test := range []struct {
		name, in string
		bad      bool
		want     string
	}{
		{"nothing", "FAIL build\n", true, "FAIL build\nscenarios"},
		{"the same", same, false, "all        1            1"},
		{"one failed", one + line("fail", "dbos", "memory/tools/two", "") + end("pass", "local") + end("fail", "dbos"), true, "1, 1 failed, 0 skipped"},
		{
			"what it wrote", one + line("output", "dbos", "memory/tools/two/sub", "why it failed\n") + line("fail", "dbos", "memory/tools/two", "") +
				line("fail", "dbos", "memory/tools", "") + end("pass", "local") + end("fail", "dbos"),
			true, two + "\nwhy it failed\n\nx/runtime/dbos failed\n",
		},
		{
			"a lot", one + line("output", "dbos", "memory/tools/two", strings.Repeat("x", 2*maxOutput)) +
				line("output", "dbos", "memory/tools/two", "why it failed\n") + line("fail", "dbos", "memory/tools/two", "") + end("pass", "local") + end("fail", "dbos"),
			true, "xwhy it failed\n",
		},
		{
			"one has no end", one + line("run", "dbos", "memory/tools/two", "") + line("output", "dbos", "memory/tools/two", "panic: x\n") + end("pass", "local") + end("fail", "dbos"),
			true, two + " did not end\npanic: x\n",
		},
		{
			"go test has no end", one + end("pass", "local") + line("run", "dbos", "memory/tools/two", "") + line("output", "dbos", "memory/tools/two", "so far\n"),
			true, two + " did not end\nso far\n",
		},
		{"a leak", one + line("output", "dbos", "", "found unexpected goroutines\n") + end("pass", "local") + end("fail", "dbos"), true, "x/runtime/dbos failed\nfound unexpected goroutines\n"},
		{
			"a broken build", line("pass", "local", "memory/tools/one", "") + end("pass", "local") + line("build-output", "dbos", "", "undefined: x\n") +
				`{"Action":"fail","Package":"x/runtime/dbos","FailedBuild":"x/runtime/dbos"}` + "\n",
			true, "x/runtime/dbos failed\nundefined: x\n",
		},
		{"a package without scenarios", line("pass", "local", "memory/tools/one", "") + end("pass", "local") + end("pass", "dbos"), true, "x/runtime/dbos has no scenario\n"},
		{"one skipped", one + line("skip", "local", "memory/tools/two", "") + end("pass", "local") + end("pass", "dbos"), true, "1, 0 failed, 1 skipped"},
		{"one missing", one + line("pass", "local", "memory/tools/two", "") + end("pass", "local") + end("pass", "dbos"), true, "all        1            2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			bad, err := run(strings.NewReader(test.in), &out)
			if err != nil || bad != test.bad || !strings.Contains(out.String(), test.want) {
				t.Errorf("%t, %v:\n%s", bad, err, out.String())
			}
		})
	}
}
