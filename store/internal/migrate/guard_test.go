package migrate_test

import (
	"errors"
	"testing"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/migrate"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	g := migrate.NewGuard(3)
	for _, from := range []int{0, 1, 3} {
		if err := errors.Join(g.Note(from), g.Err()); err != nil {
			t.Errorf("a store that programs with schema %d can use: %v", from, err)
		}
	}
	for _, from := range []int{4, 5, 1} { // it stays so
		for _, err := range []error{g.Note(from), g.Err()} {
			if !errors.Is(err, session.ErrUnavailable) || session.IsRetryable(err) {
				t.Errorf("a store that has become too new: %v", err)
			}
		}
	}
}
