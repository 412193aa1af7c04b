package blob_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/quick"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

func TestRef(t *testing.T) {
	t.Parallel()
	const empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got := blob.RefOf(nil); got != empty {
		t.Errorf("the reference of nothing is %s", got)
	}
	check := func(data []byte) bool {
		ref := blob.RefOf(data)
		return blob.CheckRef(ref) == nil && blob.FromDigits(blob.Digits(ref)) == ref && blob.Verify(ref, data) == nil &&
			errors.Is(blob.Verify(ref, append(bytes.Clone(data), 1)), session.ErrCorrupt)
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", empty[7:], empty + "0", empty[:70], strings.ToUpper(empty), "sha256:" + strings.Repeat("/", 64)} {
		if err := blob.CheckRef(bad); !errors.Is(err, session.ErrInvalid) || session.AsError(err).Field != "blob" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPieces(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, blob.PieceBytes - 1, blob.PieceBytes, blob.PieceBytes + 1, blob.MaxBytes} {
		data := make([]byte, size)
		pieces := blob.Pieces(data)
		if want := (size + blob.PieceBytes - 1) / blob.PieceBytes; len(pieces) != want || !bytes.Equal(bytes.Join(pieces, nil), data) {
			t.Errorf("%d bytes have %d pieces", size, len(pieces))
		}
		for _, piece := range pieces {
			if len(piece) > blob.PieceBytes {
				t.Errorf("a piece has %d bytes", len(piece))
			}
		}
	}
}
