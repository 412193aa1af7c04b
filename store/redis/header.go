package redis

import (
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// header is a session's header: the document without its large parts, and the
// other fields that a change needs. A change makes all its decisions on it.
type header struct {
	// State has the fields of the header; setDoc adds the rest of the document.
	session.State
	raw map[string]string // as it is stored

	closePendingAt time.Time
	runStatus      session.RunStatus
	runRuntime     string

	// The record of the run in flight, as far as commits change it.
	runSteps  int
	runReason session.CompletionReason
	runUsage  session.Usage
	attempts  int
	progress  int64

	stop  *session.Stop
	inbox bool
}

func newHeader(tenant, id string, raw map[string]string) *header {
	h := &header{raw: raw}
	number := func(field string) int64 { return number(raw[field]) }
	h.Tenant, h.ID = tenant, id
	h.Version, h.StepCount, h.ResumeCount = number("v"), int(number("steps")), int(number("resumes"))
	h.MessageCount, h.LastCommit, h.UpdatedAt = int(number("msgs")), raw["commit"], moment(raw["updated"])
	h.Marks = marksOf(raw["marks"])
	h.CheckpointID, h.CheckpointSource = raw["cp"], session.CheckpointSource(raw["cpsrc"])
	h.CheckpointedAt = moment(raw["cpat"])
	h.Status = session.Status(raw["status"])
	h.Lease = session.Lease{Owner: raw["owner"], Epoch: number("epoch"), ExpiresAt: moment(raw["lease"])}
	h.Turn, h.CurrentRunID = int(number("turn")), raw["run"]
	h.runStatus, h.runRuntime = session.RunStatus(raw["rstatus"]), raw["runtime"]
	h.Requires = stored.SplitNames(raw["needs"])
	h.closePendingAt = moment(raw["owed"])
	h.ClosePending = !h.closePendingAt.IsZero()
	readFields(&h.State, raw)
	h.CreatedAt = moment(raw["created"])
	h.runSteps, h.runReason, h.runUsage = int(number("rsteps")), session.CompletionReason(raw["rreason"]), usageOf(raw["usage"])
	h.attempts, h.progress = int(number("attempts")), number("progress")
	h.inbox = number("inbox") > 0
	if kind := raw["stopk"]; kind != "" {
		h.stop = &session.Stop{RunID: h.CurrentRunID, Kind: session.StopKind(kind), Reason: raw["stopr"], At: moment(raw["stopa"])}
	}
	return h
}

// state returns the document for guards, or nil if there is no session.
func (h *header) state() *session.State {
	if h == nil {
		return nil
	}
	return &h.State
}

// run returns what the guards need of the current run, or nil.
func (h *header) run() *session.Run {
	if h == nil || h.CurrentRunID == "" {
		return nil
	}
	return &session.Run{ID: h.CurrentRunID, Status: h.runStatus, Attempts: h.attempts, ProgressVersion: h.progress}
}

// isRunning reports whether the current run has not ended.
func (h *header) isRunning() bool { return h.runStatus == session.RunRunning }

// activity returns the session's current activity.
func (h *header) activity() session.Activity { return session.ActivityOf(h.Status, h.runStatus) }

// unmoved returns the fields that a decision about the session depends on. If any
// of them has changed when the decision is carried out, it is made again.
func (h *header) unmoved(fields ...string) []any {
	if len(fields) == 0 {
		fields = []string{"v", "owner", "epoch", "lease", "run", "rstatus", "status", "created"}
	}
	out := make([]any, 0, 2*len(fields))
	for _, field := range fields {
		out = append(out, field, h.raw[field])
	}
	return out
}

// atVersion returns an error if the version is not the session's.
func (h *header) atVersion(version int64) error {
	if h.Version == version {
		return nil
	}
	return session.ErrStale.WithMessage("session %s: expected version %d", h.ID, version).WithSaw(h.Saw())
}

// labels reads the tags and metadata.
func (h *header) labels() error {
	if tags := h.raw["tags"]; tags != "" {
		if err := session.Decode("session "+h.ID+": tags", []byte(tags), &h.Tags); err != nil {
			return err
		}
	}
	if metadata := h.raw["meta"]; metadata != "" {
		return session.Decode("session "+h.ID+": metadata", []byte(metadata), &h.Metadata)
	}
	return nil
}

// encodeLabels encodes the tags and metadata in the header's form.
func encodeLabels(tags []string, metadata map[string]string) (string, string, error) {
	var t, m string
	if tags = session.UniqueTags(tags); len(tags) > 0 {
		raw, err := session.Encode(tags)
		if err != nil {
			return "", "", err
		}
		t = string(raw)
	}
	if len(metadata) > 0 {
		raw, err := session.Encode(metadata)
		if err != nil {
			return "", "", err
		}
		m = string(raw)
	}
	return t, m, nil
}

func usageOf(s string) (u session.Usage) {
	fields := stored.Usage(&u)
	for i, n := range strings.Fields(s) {
		if i < len(fields) {
			*fields[i] = number(n)
		}
	}
	return u
}

// marksOf and encodeMarks convert marks from and to the header's form: the marker's
// number and that of the first message that it keeps, for each.
func marksOf(s string) (marks session.Marks) {
	fields := strings.Fields(s)
	for i := 0; i+1 < len(fields); i += 2 {
		marks = append(marks, session.Mark{Marker: int(number(fields[i])), From: int(number(fields[i+1]))})
	}
	return marks
}

func encodeMarks(marks session.Marks) string {
	var b strings.Builder
	for _, m := range marks {
		b.WriteString(itoa(m.Marker) + " " + itoa(m.From) + " ")
	}
	return b.String()
}

func itoa[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }
