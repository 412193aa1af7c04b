package engine

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash"
	"slices"

	"github.com/helixagents/helix/llm"
)

// promptDigest is the digest of the instructions and tools that an agent's model was
// last asked with. Both seldom change, so it is computed once and then compared.
type promptDigest struct {
	instructions string
	tools        []llm.Tool
	digest       json.RawMessage // a JSON string
}

// digestPrompt returns the digest of a request's instructions and tools, as a JSON
// string.
func (h *Handler) digestPrompt(request *llm.Request) json.RawMessage {
	if last, ok := h.digests.Load(request.Agent); ok {
		if known := last.(*promptDigest); known.of(request) {
			return known.digest
		}
	}
	made := &promptDigest{instructions: request.Instructions, tools: slices.Clone(request.Tools)}
	sum := sha256.New()
	addText(sum, made.instructions)
	for i := range made.tools {
		tool := &made.tools[i]
		addText(sum, tool.Name)
		addText(sum, tool.Description)
		addText(sum, string(tool.Schema))
		if tool.Strict {
			addText(sum, "strict")
		}
	}
	made.digest = json.RawMessage(`"` + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12]) + `"`)
	h.digests.Store(request.Agent, made)
	return made.digest
}

func (d *promptDigest) of(request *llm.Request) bool {
	return d.instructions == request.Instructions && slices.EqualFunc(d.tools, request.Tools, func(a, b llm.Tool) bool {
		return a.Name == b.Name && a.Description == b.Description && a.Strict == b.Strict && string(a.Schema) == string(b.Schema)
	})
}

// addText adds a text with its length, so that no two lists of texts are the same.
func addText(sum hash.Hash, text string) {
	sum.Write(binary.AppendUvarint(nil, uint64(len(text))))
	sum.Write([]byte(text))
}
