package session

// Cleanup is the result of a clean-up of expired sessions.
type Cleanup struct {
	// Detected counts the expired sessions that were found. Marked counts those that
	// were failed as expired, AlreadyTerminal those that had ended or were used in the meantime,
	// and Running those that were skipped because of a run.
	Detected        int `json:"detected"`
	Marked          int `json:"marked"`
	AlreadyTerminal int `json:"alreadyTerminal"`
	Running         int `json:"running"`
	// Errors names the sessions that could not be handled; the next clean-up finds
	// them again.
	Errors []string `json:"errors"`
}
