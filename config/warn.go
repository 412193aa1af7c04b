package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// exampleToken is part of the tokens that are written in the examples, for all to read.
const exampleToken = "change-me"

// Warnings lists what the file allows and its author probably does not mean: it is valid, but
// something will be refused or missed when it is used. Like [Problem] of an invalid file,
// each has a place.
func (f *File) Warnings() []Problem {
	s := f.source.anew()
	for i := range f.Server.Tokens {
		if strings.Contains(f.Server.Tokens[i].Token, exampleToken) {
			s.wrong(fmt.Sprintf("server.tokens[%d].token", i), "this token is in a public example, so everybody knows it; set one of your own")
		}
	}
	alone := len(f.Server.Tokens) > 0 && !slices.ContainsFunc(f.Server.Tokens, func(t Token) bool { return t.Operator })
	for i := range f.Tools {
		f.Tools[i].warn(s)
		if alone && f.Tools[i].Approvers != "" {
			s.wrong("tools."+f.Tools[i].Name+".approvers", "no token is an operator's, so nobody but the conversation's own user can answer; a colleague needs operator: true")
		}
	}
	failure, ok := errors.AsType[*Error](s.err())
	if !ok {
		return nil
	}
	return failure.Problems
}

func (t *Tool) warn(s *source) {
	at := "tools." + t.Name
	if t.Description == "" && t.Type != typeBuiltin {
		s.wrongKey(at, "the tool has no description, so the model is told only its name")
	}
	if t.Type == typeHTTP && !t.AllowPrivate && isPrivateHost(t.URL) {
		s.wrong(at+".url", "the service is on this machine or in a private network, so every call will be refused; set allowPrivate: true to allow it")
	}
}

// isPrivateHost reports whether an address names a host that is not on the internet. A name
// that has to be resolved is checked with each call.
func isPrivateHost(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(u.Hostname(), ".")
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && !public(ip)
}
