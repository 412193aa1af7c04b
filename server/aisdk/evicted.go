package aisdk

import (
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Whole is the data part about a call whose result is too large for the conversation: the
// call's output is only the beginning and the end. Each blob is downloaded from the session,
// and all of them, one after another, are the result.
//
// It is apart from the output, because tools make outputs, and could make one that looks like
// it.
type Whole struct {
	CallID string `json:"toolCallId"`
	// Blobs is empty if the output is the whole result after all, because the call was
	// carried out again.
	Blobs []string `json:"blobs"`
	Bytes int64    `json:"bytes"`
	Lines int64    `json:"lines"`
	// JSON is set if the result is a JSON value; otherwise it is text.
	JSON bool `json:"json,omitempty"`
}

func newWhole(callID string, of *session.Evicted) *Whole {
	if of == nil {
		return &Whole{CallID: callID, Blobs: []string{}}
	}
	return &Whole{CallID: callID, Blobs: of.Blobs, Bytes: of.Bytes, Lines: of.Lines, JSON: of.JSON}
}

// locate tells where the whole result of a call is. It comes before the output, so that a
// client that shows the output knows.
func (e *Encoder) locate(k *call, of *session.Evicted) {
	if k.final || k.hidden || !k.available || e.cfg.OmitToolResults || of == nil && !k.located {
		return
	}
	k.located = true
	e.emitAbout(k, Chunk{Type: DataPrefix + stream.EvictedName, ID: k.id, Data: encoded(newWhole(k.id, of))})
}
