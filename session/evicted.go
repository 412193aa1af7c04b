package session

import "encoding/json"

// Evicted says where the whole of a result is, if its message has only the beginning and the
// end of it.
type Evicted struct {
	// ID is the name under which the model reads parts of the result.
	ID string `json:"id"`
	// Blobs are the references of the blobs that are the result, one after another.
	Blobs []string `json:"blobs"`
	// Bytes and Lines are the size of the result.
	Bytes int64 `json:"bytes"`
	Lines int64 `json:"lines"`
	// JSON is set if the result is a JSON value; otherwise it is text.
	JSON bool `json:"json,omitempty"`
}

// Evicted returns where the whole of a result is, or nil if the message is not the result of
// a call or has all of it.
func (m *Message) Evicted() *Evicted {
	if m.Role != RoleTool || len(m.Metadata) == 0 {
		return nil
	}
	return EvictedFrom(m.Metadata[MetaEvicted])
}

// EvictedFrom decodes the value of [MetaEvicted]. It returns nil if that names no blob.
func EvictedFrom(value json.RawMessage) *Evicted {
	if len(value) == 0 {
		return nil
	}
	var out Evicted
	if json.Unmarshal(value, &out) != nil || len(out.Blobs) == 0 {
		return nil
	}
	return &out
}
