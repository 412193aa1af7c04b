package session

// Held is a lease that a process holds.
type Held struct {
	Key
	Fence
}

// Renewed is the result of renewing a lease.
type Renewed struct {
	// Stops are the requests to stop running runs of the session and of the sessions of
	// its tree whose leases were renewed with it.
	Stops []Stop
	// Err is why the lease was not renewed. It is [ErrStale] if the lease was lost, and
	// [ErrNotFound] if there is no such session.
	Err error
}

// NotRenewed is the result of renewing leases that failed for all of them.
func NotRenewed(leases []Held, err error) []Renewed {
	out := make([]Renewed, len(leases))
	for i := range out {
		out[i].Err = err
	}
	return out
}
