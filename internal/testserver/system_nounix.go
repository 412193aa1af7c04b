//go:build !unix

package testserver

import (
	"errors"
	"os"
	"syscall"
)

// Elsewhere the package compiles, and knows the servers that the environment names.
var errNotUnix = errors.New("servers are started on Unix only: name running ones in " + envPostgres + ", " + envRedis + " and " + envRedisCluster)

const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)

func (a *account) attr() *syscall.SysProcAttr { return nil }

func setProcessGroup(*syscall.SysProcAttr) {}

func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}

func sendSignal(int, syscall.Signal) error { return errNotUnix }

func flock(*os.File) (ok bool, err error) { return false, errNotUnix }

func descendants(int) ([]int, error) { return nil, errNotUnix }

func alive(int) bool { return false }

func removeSegment(int) {}
