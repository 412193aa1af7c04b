package stored

import (
	"errors"

	"github.com/helixagents/helix/session"
)

// UnlessCorrupt ignores an error about a row that cannot be decoded, where such a
// row may be skipped.
func UnlessCorrupt(err error) error {
	if errors.Is(err, session.ErrCorrupt) {
		return nil
	}
	return err
}
