package temporal

import (
	"hash/fnv"
	"slices"
	"time"
)

// askings is what processes that are asked to take a turn over tell each other, through the
// details of their heartbeats: for how long the one that holds the turn has not answered, though
// it could have. The server passes the details from one attempt to the next, so they are small.
type askings struct {
	Attempts int           `json:"attempts"`
	By       []uint32      `json:"by"`    // hashes of the task queues of processes that were asked
	Last     time.Time     `json:"last"`  // when the last attempt began, by the server's clock
	Asked    time.Duration `json:"asked"` // for how long attempts followed each other
}

const (
	// attemptTime is how much of the time between two attempts counts. What is longer is an
	// outage of the server, or a process that did not answer: the holder could not answer then.
	attemptTime = 400 * time.Millisecond
	// turnsEach is how many attempts have to be made for each process that was asked, before it is
	// likely that all were that ask the server for work.
	turnsEach = 6
	maxAskers = 256
)

// note adds an attempt by the process with the given task queue.
func (a *askings) note(queue string, now time.Time) {
	if a.Attempts > 0 {
		a.Asked += min(max(now.Sub(a.Last), 0), attemptTime)
	}
	a.Attempts++
	a.Last = now
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(queue))
	if by := hash.Sum32(); len(a.By) < maxAskers && !slices.Contains(a.By, by) {
		a.By = append(a.By, by)
	}
}

// inVain returns for how long the process that holds the turn has been asked for without an
// answer, which is nothing as long as it may not have had its turn.
func (a *askings) inVain() time.Duration {
	if a.Attempts < turnsEach*len(a.By) {
		return 0
	}
	return a.Asked
}
