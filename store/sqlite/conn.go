package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// maxStatements bounds a connection's prepared statements. Only listings make
// their text at run time; everything else is a few dozen constants.
const maxStatements = 256

// conn is one connection with its prepared statements. It is not safe for
// concurrent use: the writer owns one, readers borrow theirs from a pool.
//
// It speaks to the driver directly. The pooling, locking and conversions of
// database/sql cost more than most statements here, and are of no use to a
// connection that has one user.
type conn struct {
	raw        driver.Conn
	statements map[string]*statement
	args       []driver.NamedValue // of the last statement
}

type statement struct {
	driver.Stmt
	busy bool // its rows are being read
}

// open connects to the database file with the given pragmas.
func open(path string, pragmas ...string) (*conn, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	query := url.Values{"_pragma": pragmas}
	dsn := "file:" + (&url.URL{Path: filepath.ToSlash(absolute)}).EscapedPath() + "?" + query.Encode()
	raw, err := (&sqlite.Driver{}).Open(dsn)
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw, statements: map[string]*statement{}}, nil
}

// limit bounds the size of the file, if bytes is not 0.
func (c *conn) limit(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	r, err := c.one("PRAGMA page_size") // that of an existing file is its own
	if err == nil {
		_, err = c.one(fmt.Sprintf("PRAGMA max_page_count = %d", max(bytes/r.int64(), 1)))
	}
	return err
}

// setBusyTimeout says how long statements wait for another connection's locks.
func (c *conn) setBusyTimeout(d time.Duration) error {
	_, err := c.one(fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds()))
	return err
}

func (c *conn) close() error {
	c.forget()
	return c.raw.Close()
}

func (c *conn) forget() {
	for _, s := range c.statements {
		_ = s.Close()
	}
	clear(c.statements)
}

// prepare returns the statement for a query. One whose rows are still being read
// is not disturbed: the caller gets another, which is not kept.
func (c *conn) prepare(query string) (s *statement, kept bool, err error) {
	if s, kept = c.statements[query]; kept && !s.busy {
		return s, true, nil
	}
	raw, err := c.raw.Prepare(query)
	if err != nil {
		return nil, false, fmt.Errorf("%w in %q", err, query)
	}
	if s != nil {
		return &statement{Stmt: raw}, false, nil
	}
	if len(c.statements) >= maxStatements && !c.reading() {
		c.forget()
	}
	s = &statement{Stmt: raw}
	c.statements[query] = s
	return s, true, nil
}

func (c *conn) reading() bool {
	for _, s := range c.statements {
		if s.busy {
			return true
		}
	}
	return false
}

// exec runs a statement and returns the number of rows it changed.
func (c *conn) exec(query string, args ...any) (int64, error) {
	result, err := c.run(query, args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// insert adds a row and returns its number.
func (c *conn) insert(query string, args ...any) (int64, error) {
	result, err := c.run(query, args)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

func (c *conn) run(query string, args []any) (driver.Result, error) {
	s, kept, err := c.prepare(query)
	if err != nil {
		return nil, err
	}
	if !kept {
		defer func() { _ = s.Close() }()
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(context.Background(), c.named(args))
}

// script runs several statements without arguments.
func (c *conn) script(text string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return err
}

// query yields the rows of a query. A row is the caller's to keep.
func (c *conn) query(query string, args ...any) iter.Seq2[*row, error] {
	return func(yield func(*row, error) bool) {
		s, kept, err := c.prepare(query)
		if err != nil {
			yield(nil, err)
			return
		}
		if !kept {
			defer func() { _ = s.Close() }()
		}
		s.busy = true
		defer func() { s.busy = false }()
		rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(context.Background(), c.named(args))
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = rows.Close() }()
		columns := len(rows.Columns())
		for {
			r := &row{values: make([]driver.Value, columns)}
			if err := rows.Next(r.values); err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, err)
				}
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// one returns the first row of a query, or nil if there is none.
func (c *conn) one(query string, args ...any) (*row, error) {
	for r, err := range c.query(query, args...) {
		return r, err
	}
	return nil, nil
}

// named gives arguments in the driver's form. The driver is done with them when it
// returns, so the next statement may use the same memory.
func (c *conn) named(args []any) []driver.NamedValue {
	c.args = slices.Grow(c.args[:0], len(args))
	for i, arg := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: value(arg)})
	}
	return c.args
}

// value gives an argument in one of the few types that the driver knows.
func value(arg any) driver.Value {
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
		return nanos(v)
	}
	if v := reflect.ValueOf(arg); v.Kind() == reflect.String { // a status or kind
		return v.String()
	}
	panic(fmt.Sprintf("no column holds a %T", arg))
}

// The times that nanoseconds since 1970 can tell.
var (
	minTime = time.Unix(0, -1<<63)
	maxTime = time.Unix(0, 1<<63-1)
)

// nanos is how a time is stored: NULL if it is zero.
func nanos(t time.Time) driver.Value {
	switch {
	case t.IsZero():
		return nil
	case t.Before(minTime):
		return minTime.UnixNano()
	case t.After(maxTime):
		return maxTime.UnixNano()
	}
	return t.UnixNano()
}

// row is one row of a result. Its columns are taken from left to right, each by
// the method of its type; NULL is the zero value.
type row struct {
	values []driver.Value
	next   int
}

func (r *row) take() driver.Value {
	v := r.values[r.next]
	r.next++
	return v
}

func (r *row) text() string {
	switch v := r.take().(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func (r *row) bytes() []byte {
	switch v := r.take().(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}

func (r *row) int64() int64 {
	v, _ := r.take().(int64)
	return v
}

func (r *row) int() int   { return int(r.int64()) }
func (r *row) bool() bool { return r.int64() != 0 }

func (r *row) time() time.Time {
	if v, ok := r.take().(int64); ok {
		return time.Unix(0, v).UTC()
	}
	return time.Time{}
}

// placeholders is "?, ?, …" for n values.
func placeholders(n int) string {
	return strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
}

// maxNumber is the highest number of a row that a session or stream has added.
const maxNumber = 1<<32 - 1

// rowKey is the key of a row that a session or stream has added: the rows of one
// lie together, in the order of their own numbers. A number out of range would be
// another's row, so it is a fault that must not pass.
func rowKey(owner, number int64) int64 {
	if owner < 0 || owner > math.MaxInt32 || number < 0 || number > maxNumber {
		panic(fmt.Sprintf("row %d of %d is out of range", number, owner))
	}
	return owner<<32 + number
}

// lastKey is at or above every key of a session's or stream's rows.
func lastKey(owner int64) int64 { return rowKey(owner, maxNumber) }
