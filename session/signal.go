package session

// Signal announces something that was written for a session and that a process which
// works on it, or could, has to know at once. The zero signal says that signals may
// have been lost.
type Signal struct {
	Key
	// StopOf is the run of which a stop was requested. It is empty if a wake was put.
	StopOf string `json:"stopOf,omitempty"`
}
