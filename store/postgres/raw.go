package postgres

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// rawRow reads a row's columns one by one. For a row with many columns this takes
// a fraction of the time of scanning it. err is the first error.
type rawRow struct {
	rows   pgx.Rows
	values [][]byte // nil for NULL
	err    error
}

func (r *rawRow) null(i int) bool { return r.values[i] == nil }

// text returns a text column; "" for NULL.
func (r *rawRow) text(i int) string { return string(r.values[i]) }

// int returns a column of any integer type; 0 for NULL.
func (r *rawRow) int(i int) int64 {
	v := r.values[i]
	if r.rows.FieldDescriptions()[i].Format == pgx.TextFormatCode && v != nil {
		n, err := strconv.ParseInt(string(v), 10, 64)
		r.note(i, err)
		return n
	}
	switch len(v) {
	case 0:
		return 0
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	}
	r.note(i, fmt.Errorf("an integer of %d bytes", len(v)))
	return 0
}

// time returns a timestamptz column; the zero time for NULL.
func (r *rawRow) time(i int) (t time.Time) {
	field := &r.rows.FieldDescriptions()[i]
	r.note(i, r.rows.Conn().TypeMap().Scan(field.DataTypeOID, field.Format, r.values[i], instant{&t}))
	return t
}

func (r *rawRow) note(i int, err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("column %d: %w", i, err)
	}
}
