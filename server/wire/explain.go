package wire

import (
	"strings"

	"github.com/helixagents/helix/session"
)

// Explain returns one sentence that explains a failure to a user of an agent. It depends
// only on the code and reveals nothing about the server.
func Explain(code session.Code) string {
	if sentence := sentences[code]; sentence != "" {
		return sentence
	}
	switch category, _, _ := strings.Cut(string(code), "_"); category {
	case "provider":
		return "The model could not answer."
	case "tool":
		return "A tool of the agent failed."
	}
	return "Something went wrong on the server."
}

var sentences = map[session.Code]string{
	session.CodeAuth:          "The model's provider refused the API key that this server uses.",
	session.CodeQuota:         "The account at the model's provider has no credit left, or its quota is used up.",
	session.CodeRateLimited:   "The model's provider is getting too many requests. Try again in a moment.",
	session.CodeOverloaded:    "The model is overloaded. Try again in a moment.",
	session.CodeProviderDown:  "The model cannot be reached. Try again in a moment.",
	session.CodeModelTimeout:  "The model took too long to answer. Try again in a moment.",
	session.CodeMalformed:     "The model sent an answer that cannot be read. Try again.",
	session.CodeBadReply:      "The model sent an empty answer. Try again.",
	session.CodeBadRequest:    "The model's provider did not accept the request.",
	session.CodeContextLength: "The conversation has become too long for the model.",
	session.CodeContentFilter: "The model's provider blocked the answer because of its content rules.",

	session.CodeMaxSteps:     "The agent reached its limit of steps before it was done.",
	session.CodeNoOutput:     "The agent stopped without returning the requested result.",
	session.CodeCrashLoop:    "The server crashed several times while it worked on this, so the run was ended.",
	session.CodeCancelled:    "The run was stopped.",
	session.CodeHook:         "The application refused to continue.",
	session.CodeExtension:    "A part that the agent cannot work without is not available. Try again in a moment.",
	session.CodeUnknownAgent: "This server does not have the agent of this conversation.",
	session.CodeRemote:       "The agent runs on another server, which cannot be reached.",
	session.CodeNotSupported: "This server cannot do that.",
	session.CodeClosed:       "The server is shutting down. Try again in a moment.",

	session.CodeUnavailable: "The server is unavailable. Try again in a moment.",
	session.CodeCorrupt:     "The stored conversation cannot be read.",
	session.CodeTooLarge:    "The conversation has become too large.",
	session.CodeRunning:     "The agent is still working on this conversation. Wait until it is done, or stop it.",
	session.CodeStale:       "The conversation has changed in the meantime. Load it again.",
	session.CodeTransition:  "The conversation has changed in the meantime. Load it again.",
	session.CodeAnswered:    "This was answered in the meantime. Load the conversation again.",
	session.CodeAwaiting:    "The agent is waiting for an answer. Give it first.",
	session.CodePaused:      "The conversation is paused. Resume it first.",
	session.CodeExpired:     "This conversation expired. Retry it, or send a new message.",

	session.CodeNotFound:     "There is no such conversation, or no such message in it.",
	session.CodeNotResumable: "The conversation cannot be continued there. Load it again, or send a new message.",
	session.CodeSubmission:   "The answer does not match the question. Load the conversation again.",
	session.CodeNotAllowed:   "You may not answer this.",
}
