package config

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }
