package aisdk

import (
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// The types of chunks. Data parts have the prefix DataPrefix.
const (
	TypeStart            = "start"
	TypeFinish           = "finish"
	TypeAbort            = "abort"
	TypeError            = "error"
	TypeMetadata         = "message-metadata"
	TypeStartStep        = "start-step"
	TypeFinishStep       = "finish-step"
	TypeResetStep        = "reset-step"
	TypeTextStart        = "text-start"
	TypeTextDelta        = "text-delta"
	TypeTextEnd          = "text-end"
	TypeReasoningStart   = "reasoning-start"
	TypeReasoningDelta   = "reasoning-delta"
	TypeReasoningEnd     = "reasoning-end"
	TypeFile             = "file"
	TypeInputStart       = "tool-input-start"
	TypeInputDelta       = "tool-input-delta"
	TypeInputAvailable   = "tool-input-available"
	TypeInputError       = "tool-input-error"
	TypeOutputAvailable  = "tool-output-available"
	TypeOutputError      = "tool-output-error"
	TypeOutputDenied     = "tool-output-denied"
	TypeApprovalRequest  = "tool-approval-request"
	TypeApprovalResponse = "tool-approval-response"

	DataPrefix = "data-"
)

// Done is the data of the frame that ends a stream.
const Done = "[DONE]"

// Chunk is one chunk of a UI message stream. Type determines which fields are set; a client
// of version 5 refuses a chunk with others.
type Chunk struct {
	Type           string          `json:"type"`
	MessageID      string          `json:"messageId,omitempty"`
	Metadata       *Metadata       `json:"messageMetadata,omitempty"`
	FinishReason   string          `json:"finishReason,omitempty"`
	Reason         string          `json:"reason,omitempty"`
	ErrorText      string          `json:"errorText,omitempty"`
	ID             string          `json:"id,omitempty"`
	Delta          string          `json:"delta,omitempty"`
	URL            string          `json:"url,omitempty"`
	MediaType      string          `json:"mediaType,omitempty"`
	CallID         string          `json:"toolCallId,omitempty"`
	Tool           string          `json:"toolName,omitempty"`
	InputTextDelta string          `json:"inputTextDelta,omitempty"`
	Input          json.RawMessage `json:"input,omitempty"`
	Output         json.RawMessage `json:"output,omitempty"`
	Dynamic        bool            `json:"dynamic,omitempty"`
	ApprovalID     string          `json:"approvalId,omitempty"`
	Approved       *bool           `json:"approved,omitempty"`
	Data           json.RawMessage `json:"data,omitempty"`
	Transient      bool            `json:"transient,omitempty"`
}

// Metadata is Helix's metadata of a message. A client merges later metadata into earlier.
type Metadata struct {
	SessionID string `json:"sessionId,omitempty"`
	RunID     string `json:"runId,omitempty"`
	// Status is how the run ended: completed, interrupted, failed, or waiting.
	Status string `json:"status,omitempty"`
	// Code and Error describe a failure. Error is a sentence for the user.
	Code  session.Code `json:"code,omitempty"`
	Error string       `json:"error,omitempty"`
	// FinishReason is why the reply ended early: length or content-filter. It is empty if
	// the model ended the reply itself.
	FinishReason string         `json:"finishReason,omitempty"`
	Usage        *session.Usage `json:"usage,omitempty"`
	// Extra is the application's metadata, encoded beside the other fields; see
	// [Options.StartMetadata].
	Extra map[string]json.RawMessage `json:"-"`
}

// Encode returns the chunk as JSON.
func (c *Chunk) Encode() ([]byte, error) { return session.Encode(c) }

// Compacted is the data part that divides a conversation: the model is sent what came
// before it only in a shorter form.
type Compacted struct {
	Kind session.CompactionKind `json:"kind"`
	// Kept is the number of messages before it, also those that people do not see, that the
	// model is sent as they were.
	Kept int `json:"kept,omitempty"`
	// TokensBefore and TokensAfter are the sizes of the prompt, as far as they are known.
	TokensBefore int64 `json:"tokensBefore,omitempty"`
	TokensAfter  int64 `json:"tokensAfter,omitempty"`
}

// encoded returns the JSON of a value that always encodes.
func encoded(value any) json.RawMessage {
	raw, err := session.Encode(value)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}

// orNull returns the JSON or null, for fields that a client requires.
func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
