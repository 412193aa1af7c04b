package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/browsertest"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm/scripted"
)

// TestPageMarkdown shows markdown on the page; testdata/markdown.mjs says how. A commit does a
// quarter of the long texts.
func TestPageMarkdown(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 3, 4)
	release := make(chan struct{})
	open := sync.OnceFunc(func() { close(release) })
	t.Cleanup(open)
	begin, rest, _ := strings.Cut(report, "…")
	writer := &helix.Agent{Name: "writer", Model: scripted.New(scripted.Reply(
		scripted.Think("First the **numbers**, then `code`."), scripted.Say(begin),
		scripted.Until(release), // until the page has shown what it has
		scripted.Say(rest),
	).WithPieceSize(7))}
	share := ""
	if !testshare.Soak() {
		share = fmt.Sprintf("%d/4", testshare.Part(t, 16)/4)
	}
	browsertest.New(t, "markdown.mjs", "HELIX_URL="+servePage(t, writer), "HELIX_REPORT="+strings.Replace(report, "…", "", 1), "HELIX_TEST_SHARE="+share).Run(open)
}

// report has everything that models write. It is held back in the middle.
const report = "## The week in numbers\n\n" +
	"Sales are **up 12%**, and *returns* are down. See [the dashboard](https://stats.example.com/week?n=32) or https://example.com/raw.\n\n" +
	"### By region\n\n" +
	"| Region | Orders | Change | Remark |\n|:-------|-------:|:------:|--------|\n" +
	"| North  |  1,204 |  +8%   | the new warehouse in *Oslo* opened on Monday, which made `next_day` possible |\n" +
	"| South  |    987 |  +17%  | ~~late~~ on time |\n| East | 12 | – | see [notes](https://example.com/notes) |\n\n" +
	"1. Download the list.\n2. Run this:\n\n   ```go\n   func main() {\n   \tfmt.Println(\"<b>42</b>\") // a comment that is longer than the screen is wide, so that the box has to scroll\n   }\n   ```\n\n" +
	"3. Check:\n   - [x] the sums\n   - [ ] the names\n     - of people\n     - of towns\n\n…" +
	"> **Note:** quotes have *their own* bar.\n>\n> - and lists\n\n" +
	"```sh\nhelix serve --addr :4170\n```\n\n---\n\n" +
	"<script>document.title = 'ran'</script> ![a chart](https://pictures.example.net/chart.png)\n\n" +
	"- one\n- two\n\nשלום עולם, this is *right to left*.\n\nThat is all.\n"
