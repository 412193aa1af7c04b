package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// place is a port and a directory that a server has to itself. Processes agree on who has which by a lock on a file that
// is named after the port; the lock ends with the process, so whoever finds it free may clean up after a crash.
type place struct {
	port int
	dir  string
	lock *os.File
}

// Ports are taken below the range from which the system hands them out, so that no connection takes one while its server is
// down for a moment. Some servers listen a second time, 10000 higher: a node of a Redis Cluster by itself, Temporal because
// it is told to.
const (
	firstPort  = 11000
	lastPort   = 21999
	secondPort = 10000
)

// claimAttempts is how many ports are tried before there is something else wrong.
const claimAttempts = 100

// claimPlace finds a free port and makes a directory, which belongs to owner.
func claimPlace(owner *account) (*place, error) {
	root := filepath.Join(os.TempDir(), "helix-testserver-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	sweepPlaces(root)
	for range claimAttempts {
		p, err := tryClaim(root, firstPort+rand.IntN(lastPort-firstPort+1))
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		if err := p.makeDir(owner); err != nil {
			return nil, errors.Join(err, p.release())
		}
		return p, nil
	}
	return nil, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

// tryClaim returns nil if the port is taken.
func tryClaim(root string, port int) (*place, error) {
	p := &place{port: port, dir: filepath.Join(root, strconv.Itoa(port))}
	ok, err := p.tryLock()
	if err != nil || !ok {
		return nil, err
	}
	if !portFree(port) || !portFree(port+secondPort) {
		return nil, p.release()
	}
	return p, nil
}

// sweepPlaces removes what processes that crashed left behind.
func sweepPlaces(root string) {
	locks, err := filepath.Glob(filepath.Join(root, "*.lock"))
	if err != nil {
		return
	}
	for _, lock := range locks {
		dir := strings.TrimSuffix(lock, ".lock")
		port, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		p := &place{port: port, dir: dir}
		if ok, err := p.tryLock(); err == nil && ok {
			_ = p.release() // the next user of the space gets the error
		}
	}
}

func (p *place) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func (p *place) dataDir() string { return filepath.Join(p.dir, "data") }

func (p *place) logFile() string { return filepath.Join(p.dir, "log") }

func (p *place) makeDir(owner *account) error {
	if err := os.RemoveAll(p.dir); err != nil {
		return err
	}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(p.dataDir(), 0o700); err != nil {
		return err
	}
	if owner != nil {
		return os.Chown(p.dataDir(), int(owner.uid), int(owner.gid))
	}
	return nil
}

// tryLock reports whether the place is now ours.
func (p *place) tryLock() (bool, error) {
	lock, err := tryLockFile(p.dir + ".lock")
	if lock == nil {
		return false, err
	}
	// The file may have been removed, by the one who had the lock, after it was opened: then the lock is worth nothing.
	mine, err := lock.Stat()
	if err != nil {
		return false, errors.Join(err, lock.Close())
	}
	current, err := os.Stat(lock.Name())
	if err != nil || !os.SameFile(mine, current) {
		return false, lock.Close()
	}
	p.lock = lock
	return true, nil
}

// release removes what is there and gives the port back.
func (p *place) release() error {
	err := errors.Join(removeContainer(p), os.RemoveAll(p.dir))
	if err == nil { // the file stays otherwise, for a later sweep to find
		err = os.Remove(p.lock.Name())
	}
	return errors.Join(err, p.lock.Close())
}

func portFree(port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
