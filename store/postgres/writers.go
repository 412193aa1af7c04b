package postgres

import "sync"

// writers remembers, for streams that this process writes to, which session's
// producer wrote last. Other processes may write to the same streams, so it may be
// outdated: a statement that relies on it tests it.
type writers struct {
	mu       sync.Mutex
	sessions map[streamKey]string
}

// maxWriters is more than the streams that a process writes to at the same time.
const maxWriters = 4096

func newWriters() *writers { return &writers{sessions: map[streamKey]string{}} }

// last returns the session of the last producer, if it is known.
func (w *writers) last(stream streamKey) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[stream]
}

func (w *writers) note(stream streamKey, session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.sessions[stream]; !known && len(w.sessions) >= maxWriters {
		for other := range w.sessions {
			delete(w.sessions, other)
			break
		}
	}
	w.sessions[stream] = session
}

func (w *writers) forget(stream streamKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, stream)
}
