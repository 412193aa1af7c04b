//go:build !linux

package bake

import "os"

// limitMemory is possible on Linux only: elsewhere, no process can set it for another.
func limitMemory(*os.Process, uint64) {}
