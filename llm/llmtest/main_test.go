package llmtest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// One provider's SDK keeps a goroutine from the start.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
