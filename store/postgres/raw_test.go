package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestRawRow reads columns in both formats: the format of the server's answer
// depends on how the pool sends statements.
func TestRawRow(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	const query = `
SELECT -7::integer, 8589934592::bigint, 'é'::text, '2026-01-02 03:04:05.000006+00'::timestamptz, NULL::integer, NULL::timestamptz, true`
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for name, format := range map[string]int16{"text": pgx.TextFormatCode, "binary": pgx.BinaryFormatCode} {
		rows, err := b.pool.Query(t.Context(), query, pgx.QueryResultFormats{format})
		if err != nil {
			t.Fatal(err)
		}
		err = eachRow(rows, func(rows pgx.Rows) error {
			r := rawRow{rows: rows, values: rows.RawValues()}
			if r.int(0) != -7 || r.int(1) != 8589934592 || r.text(2) != "é" || !r.time(3).Equal(at) || r.time(3).Location() != time.UTC {
				t.Errorf("%s: %d, %d, %q, %v", name, r.int(0), r.int(1), r.text(2), r.time(3))
			}
			if r.null(0) || !r.null(4) || r.int(4) != 0 || !r.time(5).IsZero() {
				t.Errorf("%s: NULL is %d and %v", name, r.int(4), r.time(5))
			}
			if r.err != nil {
				t.Errorf("%s: %v", name, r.err)
			}
			if r.int(6); r.err == nil {
				t.Errorf("%s: a boolean is read as a number", name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
