package main

import (
	"strings"
	"testing"
)

func TestMatrix(t *testing.T) {
	t.Parallel()
	line := func(action, pkg, test string) string {
		return `{"Action":"` + action + `","Package":"x/runtime/` + pkg + `","Test":"TestScenarios/` + test + `"}` + "\n"
	}
	same := line("pass", "local", "memory/tools/one") + line("pass", "dbos", "memory/tools/one") + line("run", "dbos", "memory/tools/one")
	for _, test := range []struct {
		name, in string
		bad      bool
		want     string
	}{
		{"nothing", "FAIL build\n", true, "scenarios"},
		{"the same", same, false, "all        1            1"},
		{"one failed", same + line("fail", "dbos", "memory/tools/two"), true, "1, 1 failed, 0 skipped"},
		{
			"what it wrote", same + strings.Replace(line("output", "dbos", "memory/tools/two/sub"), `"}`, `","Output":"why it failed"}`, 1) + line("fail", "dbos", "memory/tools/two"),
			true, "x/runtime/dbos TestScenarios/memory/tools/two\nwhy it failed\n",
		},
		{"one skipped", same + line("skip", "local", "memory/tools/two"), true, "1, 0 failed, 1 skipped"},
		{"one missing", same + line("pass", "local", "memory/tools/two"), true, "all        1            2"},
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
