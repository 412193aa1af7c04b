package host

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/session"
)

// Blobs are swept again while there are many, for a limited time.
func TestSweepAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left, sweeps := 3*blobSweepLimit+5, 0
		err := sweepAgain(func() (int, error) {
			sweeps++
			n := min(left, blobSweepLimit)
			left -= n
			return n, nil
		})
		if err != nil || left != 0 || sweeps != 4 {
			t.Errorf("%d sweeps left %d blobs: %v", sweeps, left, err)
		}
		sweeps = 0
		err = sweepAgain(func() (int, error) {
			sweeps++
			time.Sleep(blobSweepTime / 4)
			return blobSweepLimit, nil
		})
		if err != nil || sweeps != 4 {
			t.Errorf("%d sweeps of endless blobs: %v", sweeps, err)
		}
		sweeps = 0
		err = sweepAgain(func() (int, error) {
			sweeps++
			return blobSweepLimit, session.ErrUnavailable
		})
		if !errors.Is(err, session.ErrUnavailable) || sweeps != 1 {
			t.Errorf("%d sweeps that fail: %v", sweeps, err)
		}
	})
}
