package aisdk

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/helixagents/helix/session"
)

// Options change what a client is shown of a conversation, in the same way while a
// reply is streamed and after a reload. The zero value shows everything.
type Options struct {
	// Filter reports whether a part of a message is shown. It is asked once for each part,
	// with the chunk that begins it: text-start and reasoning-start with an id,
	// tool-input-start with the call and the tool, file, and each data part. A call that it
	// leaves out cannot be answered by the page.
	Filter func(part *Chunk) bool
	// OmitReasoning leaves out what the model thinks.
	OmitReasoning bool
	// OmitToolResults leaves out what tools return: their output is null. Why a call
	// failed is still told.
	OmitToolResults bool
	// OmitSteps leaves out where steps begin and end. Pages that send answers by themselves,
	// with lastAssistantMessageIsCompleteWithToolCalls and its like, need the steps:
	// without them they send a message again that is complete.
	OmitSteps bool
	// StartMetadata and FinishMetadata add to a message's metadata, when it begins and when
	// its run ends. They are given what Helix tells; names that Helix uses itself are left
	// as they are, and values must have a JSON form. The metadata of an end is only there
	// for the last message after a reload.
	StartMetadata  func(*Metadata) map[string]any
	FinishMetadata func(*Metadata) map[string]any
}

// shows reports whether the part that a chunk begins is shown.
func (o *Options) shows(part *Chunk) bool {
	if o.OmitReasoning && part.Type == TypeReasoningStart {
		return false
	}
	return o.Filter == nil || o.Filter(part)
}

// result is what is shown of a tool's result.
func (o *Options) result(result json.RawMessage) json.RawMessage {
	if o.OmitToolResults {
		return nil
	}
	return result
}

// add adds what the application tells.
func (m *Metadata) add(more func(*Metadata) map[string]any) {
	if more == nil {
		return
	}
	told := *m
	for name, value := range more(&told) {
		raw, err := session.Encode(value)
		if err != nil || isOwn(name) {
			continue
		}
		if m.Extra == nil {
			m.Extra = map[string]json.RawMessage{}
		}
		m.Extra[name] = raw
	}
}

// ownMetadata are the names of Metadata's own fields.
var ownMetadata = map[string]bool{
	"sessionId": true, "runId": true, "status": true, "code": true, "error": true, "finishReason": true, "usage": true,
}

func isOwn(name string) bool { return ownMetadata[name] || strings.TrimSpace(name) == "" }

type metadataJSON Metadata

// MarshalJSON implements [json.Marshaler].
func (m Metadata) MarshalJSON() ([]byte, error) {
	own, err := session.Encode((*metadataJSON)(&m))
	if err != nil || len(m.Extra) == 0 {
		return own, err
	}
	extra, err := session.Encode(m.Extra)
	if err != nil || len(own) == len(`{}`) {
		return extra, err
	}
	return append(append(own[:len(own)-1], ','), extra[1:]...), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Metadata) UnmarshalJSON(data []byte) error {
	var own metadataJSON
	if err := json.Unmarshal(data, &own); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return isOwn(name) })
	if len(all) > 0 {
		own.Extra = all
	}
	*m = Metadata(own)
	return nil
}
