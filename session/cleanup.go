package session

// Cleanup is what a clean-up of expired sessions came to.
type Cleanup struct {
	// Detected counts the expired sessions that were found. Marked of them were failed
	// as expired, AlreadyTerminal had ended meanwhile, and Running were left to their
	// run.
	Detected        int `json:"detected"`
	Marked          int `json:"marked"`
	AlreadyTerminal int `json:"alreadyTerminal"`
	Running         int `json:"running"`
	// Errors says which sessions could not be seen to; they are found again the next
	// time.
	Errors []string `json:"errors"`
}
