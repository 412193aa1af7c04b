package lite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// Unit is the unit in which a database stores times, as their number since 1970.
// It belongs to the database: a number has a meaning only with the unit in which
// it was written.
type Unit time.Duration

// Nanoseconds is the unit of a SQLite file.
const Nanoseconds = Unit(time.Nanosecond)

// The times that nanoseconds since 1970 can express.
var (
	minTime = time.Unix(0, -1<<63)
	maxTime = time.Unix(0, 1<<63-1)
)

// number returns the stored form of a time: NULL if it is zero, otherwise rounded
// down.
func (u Unit) number(t time.Time) driver.Value {
	switch {
	case t.IsZero():
		return nil
	case t.Before(minTime):
		t = minTime
	case t.After(maxTime):
		t = maxTime
	}
	n := t.UnixNano() / int64(u)
	if t.UnixNano()%int64(u) < 0 {
		n--
	}
	return n
}

// time returns the time that a number represents.
func (u Unit) time(number int64) time.Time { return time.Unix(0, number*int64(u)).UTC() }

// bound is an exclusive upper bound in a condition. It is rounded up as a
// parameter, because rounding down would exclude rows that are less than a unit
// before it.
type bound time.Time

// Value converts a parameter of a statement to one of the types that a database
// stores: nil, int64, string or []byte.
func (u Unit) Value(arg any) driver.Value {
	switch v := arg.(type) {
	case nil, string, int64:
		return v
	case int:
		return int64(v)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case []byte:
		return v
	case json.RawMessage:
		return []byte(v)
	case time.Time:
		return u.number(v)
	case bound:
		return u.number(time.Time(v).Add(time.Duration(u) - 1))
	}
	if v := reflect.ValueOf(arg); v.Kind() == reflect.String { // a status or kind
		return v.String()
	}
	panic(fmt.Sprintf("no column type for a %T", arg))
}

// Row is one row of a result. Its columns are read from left to right, each with
// the method of its type; NULL is read as the zero value.
type Row struct {
	values []driver.Value
	next   int
	unit   Unit
}

// NewRow returns a row with these values, in which times have the given unit.
func NewRow(values []driver.Value, unit Unit) *Row { return &Row{values: values, unit: unit} }

func (r *Row) take() driver.Value {
	v := r.values[r.next]
	r.next++
	return v
}

// Text reads the next column.
func (r *Row) Text() string {
	switch v := r.take().(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// Bytes reads the next column.
func (r *Row) Bytes() []byte {
	switch v := r.take().(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}

// Int64 reads the next column.
func (r *Row) Int64() int64 {
	v, _ := r.take().(int64)
	return v
}

// Int reads the next column.
func (r *Row) Int() int { return int(r.Int64()) }

// Bool reads the next column.
func (r *Row) Bool() bool { return r.Int64() != 0 }

// Time reads the next column.
func (r *Row) Time() time.Time {
	if v, ok := r.take().(int64); ok {
		return r.unit.time(v)
	}
	return time.Time{}
}

// placeholders returns "?, ?, …" for n values.
func placeholders(n int) string {
	return strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
}

// maxNumber is the maximum number of a row within a session or stream.
const maxNumber = 1<<32 - 1

// rowKey returns the key of a row of a session or stream: the rows of one owner
// are adjacent, in the order of their numbers. A number out of range would address
// another owner's row, so rowKey panics.
func rowKey(owner, number int64) int64 {
	if owner < 0 || owner > math.MaxInt32 || number < 0 || number > maxNumber {
		panic(fmt.Sprintf("row %d of %d is out of range", number, owner))
	}
	return owner<<32 + number
}

// lastKey returns a key at or above every key of a session's or stream's rows.
func lastKey(owner int64) int64 { return rowKey(owner, maxNumber) }

func notFound(format string, args ...any) error {
	return session.ErrNotFound.WithMessage(format+": not found", args...)
}
