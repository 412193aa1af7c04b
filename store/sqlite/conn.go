package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"modernc.org/sqlite"

	"github.com/helixagents/helix/store/internal/lite"
)

// unit is the unit of times in the file.
const unit = lite.Nanoseconds

// maxStatements bounds a connection's prepared statements. Only listings build
// their text at run time; everything else is a few dozen constants.
const maxStatements = 256

// conn is one connection with its prepared statements. It is not safe for
// concurrent use: the writer owns one, readers borrow theirs from a pool.
//
// It uses the driver directly. The pooling, locking and conversions of
// database/sql cost more than most statements here, and a connection with a single
// user does not need them.
type conn struct {
	raw        driver.Conn
	statements map[string]*statement
	args       []driver.NamedValue // of the last statement
}

var _ lite.Conn = (*conn)(nil)

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
	r, err := c.One("PRAGMA page_size") // an existing file keeps its own
	if err == nil {
		_, err = c.One(fmt.Sprintf("PRAGMA max_page_count = %d", max(bytes/r.Int64(), 1)))
	}
	return err
}

// setBusyTimeout sets how long statements wait for another connection's locks.
func (c *conn) setBusyTimeout(d time.Duration) error {
	_, err := c.One(fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds()))
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

// prepare returns the statement for a query. If the rows of the cached statement
// are still being read, the caller gets another one, which is not cached.
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

// Exec runs a statement and returns the number of rows it changed.
func (c *conn) Exec(query string, args ...any) (int64, error) {
	result, err := c.run(query, args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Insert adds a row and returns its number.
func (c *conn) Insert(query string, args ...any) (int64, error) {
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

// Script runs several statements without arguments.
func (c *conn) Script(text string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return err
}

// Query yields the rows of a query. The caller may keep the rows.
func (c *conn) Query(query string, args ...any) iter.Seq2[*lite.Row, error] {
	return func(yield func(*lite.Row, error) bool) {
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
			values := make([]driver.Value, columns)
			if err := rows.Next(values); err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, err)
				}
				return
			}
			if !yield(lite.NewRow(values, unit), nil) {
				return
			}
		}
	}
}

// One returns the first row of a query, or nil if there is none.
func (c *conn) One(query string, args ...any) (*lite.Row, error) {
	for r, err := range c.Query(query, args...) {
		return r, err
	}
	return nil, nil
}

// named converts arguments to the driver's form. The driver has finished with them
// when it returns, so the next statement may reuse the memory.
func (c *conn) named(args []any) []driver.NamedValue {
	c.args = slices.Grow(c.args[:0], len(args))
	for i, arg := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: unit.Value(arg)})
	}
	return c.args
}
