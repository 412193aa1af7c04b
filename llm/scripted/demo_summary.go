package scripted

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

var (
	// asksSummary matches a request for the summary of a conversation, as the framework sends
	// it when the conversation has become long.
	asksSummary = regexp.MustCompile(`(?is)^\s*summari[sz]e\b.*<messages>(.*)</messages>`)
	// userSaid matches what the user said in it.
	userSaid = regexp.MustCompile(`(?m)^\[user\]\n(.+)$`)
	// asksTalk matches the question what the model was sent.
	asksTalk = regexp.MustCompile(`(?i)\bwhat (have|did) we talk`)
)

// maxSummary is how many bytes of what the user said a summary has.
const maxSummary = 300

// summary summarises the conversation in a request for it: what the user said, the last
// words first if there is no room for all.
func summary(words string) (string, bool) {
	asked := asksSummary.FindStringSubmatch(words)
	if asked == nil {
		return "", false
	}
	said, left := "", maxSummary
	all := userSaid.FindAllStringSubmatch(asked[1], -1)
	for _, found := range slices.Backward(all) {
		line := strings.TrimSpace(found[1])
		if left -= len(line) + 1; left < 0 {
			break
		}
		said = strings.TrimSpace(line + " " + said)
	}
	if said == "" {
		return "The user and the assistant talked.", true
	}
	return "The user said: " + said, true
}

// talk says what the model was sent of the conversation.
func talk(messages []session.Message) string {
	said := 0
	shorter := ""
	for i := range messages {
		m := &messages[i]
		switch what := m.Compaction(); {
		case what != nil && what.Kind == session.CompactionClear:
			shorter = "the beginning of our conversation was cleared, and"
		case what != nil:
			shorter = "I was sent a summary of the beginning of our conversation, and"
		case !m.Hidden():
			said++
		}
	}
	if shorter == "" {
		return fmt.Sprintf("I was sent all %d messages of our conversation. Say more, and its beginning is summarised.", said)
	}
	return fmt.Sprintf("Of all that you see, %s %d messages as they were.", shorter, said)
}

// usage estimates what a provider would count: a token for every four bytes.
func usage(request *llm.Request, reply *llm.Response) session.Usage {
	in := len(request.Instructions)
	for i := range request.Tools {
		tool := &request.Tools[i]
		in += len(tool.Name) + len(tool.Description) + len(tool.Schema)
	}
	for i := range request.Messages {
		in += length(request.Messages[i].Parts)
	}
	return session.Usage{InputTokens: int64(in/4 + 1), OutputTokens: int64(length(reply.Parts)/4 + 1)}
}

func length(parts []session.Part) (n int) {
	for i := range parts {
		p := &parts[i]
		n += len(p.Text) + len(p.Input) + len(p.Output)
	}
	return n
}
