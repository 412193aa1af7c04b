package stream

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// QuestionName is the name of the [Custom] chunk that shows a question: a [Question] in
// Data. CallID, Tool and Arguments are those of the call that asks.
const QuestionName = "question"

// Names of the [Custom] chunks about a compaction of the conversation.
const (
	// CompactingName is that of the chunk which says that a summary is being made.
	CompactingName = "compacting"
	// CompactedName is that of the chunk which says how a compaction ended. The marker, if it
	// has led to one, comes in a chunk of its own.
	CompactedName = "compacted"
)

// EvictedName is the name under which clients are told where a result is that is too large for
// the conversation. No chunk of a stream has it.
const EvictedName = "evicted"

// SkillLoadedName is the name of the [Custom] chunk which says that a skill was loaded.
const SkillLoadedName = "skill_loaded"

// reserved are the names of custom chunks that only the framework writes.
var reserved = []string{QuestionName, CompactingName, CompactedName, EvictedName, SkillLoadedName, "warning"}

// Reserved reports whether custom chunks of a name are the framework's own.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// Question is the data of a chunk that shows a question.
type Question struct {
	// ID is what an answer has to name.
	ID     string `json:"questionId"`
	CallID string `json:"toolCallId"`
	Tool   string `json:"toolName"`
	Prompt string `json:"prompt"`
	// The answer has to fit Schema; with a URL, the person does there what is asked for,
	// and then confirms it.
	Schema   json.RawMessage `json:"schema,omitempty"`
	URL      string          `json:"url,omitempty"`
	Deadline time.Time       `json:"deadline,omitzero"`
}

// NewQuestion returns the chunk that shows a question.
func NewQuestion(p *session.Pending) Chunk {
	q := Question{
		ID: p.CallID, CallID: p.For, Tool: p.Tool, Prompt: p.Prompt, Schema: p.Schema, URL: p.URL, Deadline: p.Deadline,
	}
	data, _ := session.Encode(q) // the entry was checked
	c := Chunk{Kind: Custom, Name: QuestionName, CallID: p.For, Tool: p.Tool, Arguments: p.Input, Data: data}
	if len(p.Input) > maxQuestionInput {
		c.Arguments, c.Omitted = nil, true
	}
	return c
}

// maxQuestionInput is how much of a call's input the chunk repeats: with more it might not
// fit a stream, and the question is what matters.
const maxQuestionInput = 64 << 10

// AsQuestion returns the question that a chunk shows, or nil.
func (c *Chunk) AsQuestion() *Question {
	if c.Kind != Custom || c.Name != QuestionName {
		return nil
	}
	q := &Question{}
	if json.Unmarshal(c.Data, q) != nil || q.ID == "" {
		return nil
	}
	return q
}
