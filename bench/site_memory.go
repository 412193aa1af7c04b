package main

import (
	"context"
	"runtime"

	"github.com/helixagents/helix/store/memory"
)

func openMemory(context.Context, string) (*site, error) {
	floor, err := newMemoryFloor()
	if err != nil {
		return nil, err
	}
	s := &site{Backend: memory.New(memory.Config{}), floor: floor}
	// One heap has both, so the floor has none of its own.
	s.occupied = func(context.Context) (ours, floors float64, err error) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		runtime.KeepAlive(s)
		return float64(m.HeapAlloc), 0, nil
	}
	return s, nil
}
