package session

import (
	"encoding/json"
	"strconv"
)

// ReplyUsage is what a reply cost, as metadata of its message: the size of a prompt
// is then the count of the last reply and an estimate of what came after it, in
// every process and after every branch.
type ReplyUsage struct {
	// Model is the name of the model that replied.
	Model string `json:"model,omitempty"`
	// In counts the tokens of the prompt, including those of a cache; Out those of the
	// reply.
	In         int64 `json:"in"`
	Out        int64 `json:"out"`
	CacheRead  int64 `json:"cacheRead,omitempty"`
	CacheWrite int64 `json:"cacheWrite,omitempty"`
}

// AppendJSON appends the usage as JSON. It is written by hand because every reply
// has it.
func (u *ReplyUsage) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	if u.Model != "" {
		b = append(AppendString(append(b, `"model":`...), u.Model), ',')
	}
	b = strconv.AppendInt(append(b, `"in":`...), u.In, 10)
	b = strconv.AppendInt(append(b, `,"out":`...), u.Out, 10)
	if u.CacheRead != 0 {
		b = strconv.AppendInt(append(b, `,"cacheRead":`...), u.CacheRead, 10)
	}
	if u.CacheWrite != 0 {
		b = strconv.AppendInt(append(b, `,"cacheWrite":`...), u.CacheWrite, 10)
	}
	return append(b, '}')
}

// ReplyUsage returns what a reply cost, or nil if the message does not say.
func (m *Message) ReplyUsage() *ReplyUsage {
	value, ok := m.Metadata[MetaUsage]
	if !ok || m.Role != RoleAssistant {
		return nil
	}
	var u ReplyUsage
	if json.Unmarshal(value, &u) != nil {
		return nil
	}
	return &u
}

// PromptDigest returns the digest of the instructions and tools that a reply was
// made with, or "" if the message does not say. Replies with equal digests had
// equal ones.
func (m *Message) PromptDigest() string {
	digest, _ := jsonString(m.Metadata[MetaPrompt])
	return digest
}
