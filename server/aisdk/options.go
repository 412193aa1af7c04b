package aisdk

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/helixagents/helix/session"
)

// Options configure what a client sees of a conversation, in the same way while a reply is
// streamed and after a reload. The zero value shows everything.
type Options struct {
	// Filter reports whether a part of a message is shown. It is called once for each part,
	// with the chunk that begins it: text-start and reasoning-start with an id,
	// tool-input-start with the call and the tool, file, and each data part. The page cannot
	// answer a call that is not shown.
	Filter func(part *Chunk) bool
	// OmitReasoning omits the model's reasoning.
	OmitReasoning bool
	// OmitToolResults replaces the results of tools with null. Errors of calls are still
	// shown.
	OmitToolResults bool
	// OmitSteps omits where steps begin and end. Pages that send answers automatically, with
	// lastAssistantMessageIsCompleteWithToolCalls and the like, need the steps: without them
	// they send a complete message again.
	OmitSteps bool
	// StartMetadata and FinishMetadata add metadata to a message when it begins and when its
	// run ends. They receive Helix's metadata, whose names they cannot override; values must
	// encode to JSON. After a reload only the last message has finish metadata.
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

// result returns the visible result of a tool.
func (o *Options) result(result json.RawMessage) json.RawMessage {
	if o.OmitToolResults {
		return nil
	}
	return result
}

// add adds the application's metadata.
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
