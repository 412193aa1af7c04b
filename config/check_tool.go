package config

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/helixagents/helix"
)

func (f *File) checkTool(t *Tool) {
	s, path := f.source, "tools."+t.Name
	if err := helix.CheckToolName(t.Name); err != nil {
		s.wrongKey(path, "%s", because(err))
	}
	f.checkKeys(t, path)
	switch t.Type {
	case typeHTTP:
		f.checkHTTP(t, path)
	case typeBuiltin:
		if t.Builtin == "" {
			f.missing(path, "builtin", ": the name of the builtin tool")
		}
	}
	f.checkMentions(t, path)
	if t.ReadOnly != nil && *t.ReadOnly && t.Idempotent != nil && *t.Idempotent {
		s.wrong(path+".idempotent", "a readOnly tool has no side effect to repeat; choose one")
	}
	waits := t.Type == typeClient || t.Approval != "" && t.Approval != approveNever || t.Builtin == "forget" && t.Approval == ""
	if !waits && t.Approvers != "" {
		s.wrong(path+".approvers", "calls of the tool never wait: it has no approval and is not of type client")
	}
	if !waits && t.Deadline != 0 {
		s.wrong(path+".deadline", "calls of the tool never wait; use timeout to limit a request")
	}
}

// checkMentions finds arguments in expressions that no call can have or that have the wrong
// type: the expression would always fail.
func (f *File) checkMentions(t *Tool, path string) {
	has := f.arguments(t, path)
	if has == nil || t.Type == typeBuiltin {
		return
	}
	for policy, expression := range map[string]Expression{"approval": t.Approval, "approvers": t.Approvers} {
		if expression == "" || expression == approveAlways || expression == approveNever || f.damaged(path+"."+policy) {
			continue
		}
		if _, err := compile(policy, string(expression), t.Input); err != nil {
			f.source.wrong(path+"."+policy, "the expression does not match the input: %v", err)
		}
		for _, name := range mentions(policy, string(expression)) {
			if !has.Open && !slices.Contains(has.Known, name) {
				f.source.wrong(path+"."+policy, "there is no argument %q in the input%s", name, f.hint(name, has.Known))
			}
		}
	}
}

// The types of tools.
const (
	typeHTTP    = "http"
	typeClient  = "client"
	typeBuiltin = "builtin"
)

// only lists the keys that only some types of tools have.
var only = map[string][]string{
	"method": {typeHTTP}, "url": {typeHTTP}, "headers": {typeHTTP}, "body": {typeHTTP}, "timeout": {typeHTTP}, "retries": {typeHTTP},
	"maxResponse": {typeHTTP}, "allowPrivate": {typeHTTP}, "builtin": {typeBuiltin}, "input": {typeHTTP, typeClient},
	"readOnly": {typeHTTP}, "idempotent": {typeHTTP}, "approval": {typeHTTP, typeBuiltin},
}

func (f *File) checkKeys(t *Tool, path string) {
	if t.Type == "" || !slices.Contains([]string{typeHTTP, typeClient, typeBuiltin}, t.Type) {
		return
	}
	for key, types := range only {
		if f.given(path+"."+key) && !slices.Contains(types, t.Type) {
			f.source.wrongKey(path+"."+key, "a tool of type %s does not have this key; only %s does", t.Type, listed(types))
		}
	}
}

func (f *File) checkHTTP(t *Tool, path string) {
	s := f.source
	f.checkHeaders(path, t.Headers)
	if t.URL == "" {
		f.missing(path, "url", "")
	} else {
		f.checkTemplate(t, path)
	}
	if !t.mayRepeat() && t.Retries != nil && *t.Retries > 0 {
		s.wrong(path+".retries", "only a tool that is readOnly or idempotent may be retried")
	}
	if t.Method == http.MethodGet || t.Method == http.MethodHead || t.Method == "" {
		if t.Body != nil {
			s.wrongKey(path+".body", "a request with the method %s has no body", t.method())
		}
	}
	arguments := f.arguments(t, path)
	for _, name := range placeholders(string(t.Body)) {
		switch {
		case isIdentity(name):
			f.checkIdentity(path+".body", name)
		case arguments != nil && !slices.Contains(arguments.Known, name):
			s.wrong(path+".body", "there is no argument %q in the input%s", name, f.hint(name, arguments.Known))
		}
	}
	for header, value := range t.Headers {
		for _, name := range placeholders(value) {
			if isIdentity(name) {
				f.checkIdentity(path+".headers."+header, name)
			}
		}
	}
}

// checkIdentity checks the name of a placeholder that the server fills in.
func (f *File) checkIdentity(path, name string) {
	if !slices.Contains(identities, name) {
		f.source.wrong(path, "there is no {%s}%s", name, f.hint(name, identities))
	}
}

// checkTemplate checks an address with arguments. They must be required, and none may
// choose the server.
func (f *File) checkTemplate(t *Tool, path string) {
	s := f.source
	before := len(s.problems)
	f.checkURL(path+".url", placeholder.ReplaceAllString(t.URL, "x"))
	if len(s.problems) > before {
		return
	}
	authority, _, _ := strings.Cut(strings.SplitN(t.URL, "://", 2)[1], "/")
	authority, _, _ = strings.Cut(authority, "?")
	if placeholder.MatchString(authority) {
		s.wrong(path+".url", "an argument must not choose the server: it may only be in the path or the query")
	}
	fixed := queryNames(t.URL)
	if slices.ContainsFunc(fixed, placeholder.MatchString) {
		s.wrong(path+".url", "an argument must not choose the name of a parameter: it may only be its value")
	}
	arguments := f.arguments(t, path)
	if arguments == nil {
		return // the input is invalid, which was reported
	}
	used := placeholders(t.URL)
	for _, name := range used {
		switch {
		case isIdentity(name):
			f.checkIdentity(path+".url", name)
		case !slices.Contains(arguments.Known, name):
			s.wrong(path+".url", "there is no argument %q in the input%s", name, f.hint(name, arguments.Known))
		case !slices.Contains(arguments.Required, name):
			s.wrong(path+".url", "the argument %q must be required by the input", name)
		}
	}
	for _, name := range arguments.Known {
		if t.inQuery() && !slices.Contains(used, name) && inNames(fixed, name) {
			s.wrong(path+".url", "the query would contain the parameter %q twice: from the address and from the arguments", name)
		}
	}
}

// arguments returns the arguments that the tool's input declares, or nil if they cannot be
// determined.
func (f *File) arguments(t *Tool, path string) *helix.Arguments {
	if t.Input == nil {
		if f.given(path + ".input") {
			return nil // invalid, which was reported
		}
		return &helix.Arguments{}
	}
	schema, err := helix.ParseSchema(json.RawMessage(t.Input))
	if err != nil {
		return nil // which was reported
	}
	out, err := schema.Arguments()
	if err != nil {
		if !f.damaged(path + ".input") {
			f.source.wrong(path+".input", "not a usable JSON Schema: %v", err)
		}
		return nil
	}
	return &out
}
