package main

import (
	"encoding/json"
	"strings"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// answerType is the type that a question's schema asks for, or "" if it is not simple.
func answerType(p *session.Pending) string {
	var schema struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(p.Schema, &schema) != nil {
		return ""
	}
	return schema.Type
}

// answerHint says how a question is answered in the terminal.
func answerHint(p *session.Pending) string {
	const decline = " /decline refuses to answer."
	switch {
	case p.URL != "":
		return "Open " + visible(p.URL) + " and then enter done." + decline
	case answerType(p) == "string":
		return "Enter your answer." + decline
	case answerType(p) == "boolean":
		return "Enter y or n." + decline
	}
	return "Enter JSON that fits " + visible(string(p.Schema)) + "." + decline
}

// questionReply converts the user's line to the answer to a question, or returns what is
// wrong with it.
func questionReply(p *session.Pending, line string) (answer wire.Submit, problem string) {
	answer.Kind = wire.SubmitAnswer
	word, reason, _ := strings.Cut(line, " ")
	switch {
	case word == "/decline":
		answer.Declined, answer.Reason = true, strings.TrimSpace(reason)
		return answer, ""
	case line == "":
		return answer, "Please enter something. /later postpones the question."
	case p.URL != "":
		if !strings.EqualFold(line, "done") {
			return answer, answerHint(p)
		}
		return answer, ""
	}
	switch answerType(p) {
	case "string":
		answer.Answer = text(line)
		return answer, ""
	case "boolean":
		switch strings.ToLower(line) {
		case "y", "yes", "true":
			answer.Answer = json.RawMessage("true")
			return answer, ""
		case "n", "no", "false":
			answer.Answer = json.RawMessage("false")
			return answer, ""
		}
		return answer, answerHint(p)
	}
	if !json.Valid([]byte(line)) {
		return answer, answerHint(p)
	}
	answer.Answer = json.RawMessage(line)
	return answer, ""
}
