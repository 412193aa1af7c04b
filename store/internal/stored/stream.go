package stored

import (
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// ProducerState is the progress of a producer: Next is its lowest number that was
// not received under Epoch, 0 if it has not written under it.
type ProducerState struct{ Epoch, Next int64 }

// Before reports whether p is less progress than q.
func (p ProducerState) Before(q ProducerState) bool {
	return p.Epoch < q.Epoch || (p.Epoch == q.Epoch && p.Next < q.Next)
}

// StreamHead is what the rows of a stream have in every store that keeps it in
// tables, with the state of one producer.
type StreamHead struct {
	stream.Info

	EndDoc, Output, Failure []byte
	WriterState             ProducerState  // of the last producer
	Producer                *ProducerState // nil if it has not written yet
}

// Describe returns the stream as callers see it.
func (h *StreamHead) Describe() (*stream.Info, error) {
	out := h.Info
	if h.EndDoc != nil {
		out.End = &stream.End{}
		if err := session.Decode("stream "+h.ID+": end", h.EndDoc, out.End); err != nil {
			return nil, err
		}
		out.End.Output = h.Output
	}
	if h.Failure != nil {
		out.Error = &session.Error{}
		if err := session.Decode("stream "+h.ID+": failure", h.Failure, out.Error); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// StreamClose is how a stream is closed, encoded: by an end, whose output is separate so that
// it keeps its bytes, or by a failure.
type StreamClose struct {
	Status               stream.Status
	End, Output, Failure []byte
}

// EndStream checks and encodes the end of a stream whose chunks have at most maxChunk bytes.
func EndStream(id string, end stream.End, maxChunk int) (*StreamClose, error) {
	if err := end.Check(); err != nil {
		return nil, err
	}
	end, err := end.Fit(maxChunk)
	if err != nil {
		return nil, err
	}
	out := &StreamClose{Status: end.Closes(), Output: end.Output}
	end.Output = nil
	if out.End, err = session.Encode(&end); err != nil {
		return nil, session.ErrInvalid.WithCause(err, "stream %s: the end cannot be encoded", id)
	}
	return out, nil
}

// FailStream encodes the failure of a stream.
func FailStream(id string, failure *session.Error) (*StreamClose, error) {
	if failure == nil {
		failure = session.ErrInternal
	}
	doc, err := session.Encode(failure)
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "stream %s: the failure cannot be encoded", id)
	}
	return &StreamClose{Status: stream.StatusFailed, Failure: doc}, nil
}

// CloseStream is FailStream or EndStream, whichever is given; nil if neither is.
func CloseStream(id string, end *stream.End, failure *session.Error, maxChunk int) (*StreamClose, error) {
	switch {
	case failure != nil:
		return FailStream(id, failure)
	case end != nil:
		return EndStream(id, *end, maxChunk)
	}
	return nil, nil
}

// Close closes the stream and reports whether it did: nothing changes if a later epoch
// has written to the stream, or if the stream is already closed for good, because the first
// call decides how it ended.
func (h *StreamHead) Close(by stream.Producer, how *StreamClose) bool {
	if h.Outdates(by) || h.Status == stream.StatusEnded || h.Status == stream.StatusFailed {
		return false
	}
	h.Status, h.EndDoc, h.Output, h.Failure = how.Status, how.End, how.Output, how.Failure
	return true
}

// Outdates reports whether the producer's session already writes under a later
// lease.
func (h *StreamHead) Outdates(by stream.Producer) bool {
	return h.Producer != nil && by.Epoch < h.Producer.Epoch
}

// CheckEpoch returns an error if the producer is outdated.
func (h *StreamHead) CheckEpoch(by stream.Producer) error {
	if !h.Outdates(by) {
		return nil
	}
	return session.ErrStale.WithMessage("stream %s: session %s writes under epoch %d, not %d",
		h.ID, by.Session, h.Producer.Epoch, by.Epoch)
}

// Enter records the run of a producer. Only the session that the stream belongs to
// sets it, although sub-agents write to the stream, too.
func (h *StreamHead) Enter(by stream.Producer) {
	if by.RunID != "" && (h.RunID == "" || by.Session == h.ID) {
		h.RunID = by.RunID
	}
}
