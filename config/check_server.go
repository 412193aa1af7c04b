package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

func (f *File) checkServer() {
	s := f.source
	f.checkHostPort("server.addr", f.Server.Addr, "127.0.0.1:4170")
	if f.Server.AllowUnauthenticated && len(f.Server.Tokens) > 0 {
		s.wrong("server.allowUnauthenticated", "the file also has tokens: choose one")
	}
	seen := map[string]bool{}
	for i, token := range f.Server.Tokens {
		path := fmt.Sprintf("server.tokens[%d]", i)
		switch {
		case token.Token == "": // which was noted
		case len(token.Token) < minToken:
			s.wrong(path+".token", "expected a token of at least %d characters", minToken)
		case strings.ContainsFunc(token.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
			s.wrong(path+".token", "a token has only visible ASCII characters")
		case seen[token.Token]:
			s.wrong(path+".token", "the token is given twice")
		}
		seen[token.Token] = true
		if token.User == "" && !token.Operator {
			f.missing(path, "user", ": only an operator's token may omit it")
		}
		f.checkID(path+".user", token.User)
		f.checkID(path+".tenant", token.Tenant)
	}
	for i, host := range f.Server.Hosts {
		if err := CheckHost(host); err != nil {
			s.wrong(fmt.Sprintf("server.hosts[%d]", i), "%v", err)
		}
	}
	if l := &f.Server.Limits; l.Buffered > 0 && l.Buffered < cmp.Or(l.Body, defaultBody) {
		s.wrong("server.limits.buffered", "expected at least the size of one body, which is %d", cmp.Or(l.Body, defaultBody))
	}
	for i, origin := range f.Server.CORS {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != origin {
			s.wrong(fmt.Sprintf("server.cors[%d]", i), "expected an origin such as https://app.example.com")
		}
	}
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?$`)

// CheckHost returns an error if a text is not a valid host name of a server.
func CheckHost(host string) error {
	if host != "*" && net.ParseIP(host) == nil && !hostName.MatchString(host) {
		return errors.New("expected a name or an address without a port, such as agents.example.com, or * for any")
	}
	return nil
}

// minInterval is the shortest lease and cleanup interval.
const minInterval = time.Second

// defaultBody is the default maximum size of a request body, in bytes.
const defaultBody = 4 << 20

// minToken is the minimum length of a bearer token.
const minToken = 16

// checkHostPort checks an address, if it is set.
func (f *File) checkHostPort(path, address, example string) {
	if address == "" {
		return
	}
	if _, port, err := net.SplitHostPort(address); err != nil || !isPort(port) {
		f.source.wrong(path, "expected host:port, such as %s", example)
	}
}

func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0 && n <= 65535
}

func (f *File) checkID(path, id string) {
	if id == "" {
		return
	}
	if err := session.CheckID(id); err != nil {
		f.source.wrong(path, "%s", because(err))
	}
}

// checkAddress checks the scheme of a store's address.
func (f *File) checkAddress(path, address string) {
	scheme, _, ok := strings.Cut(address, "://")
	if ok && !slices.Contains([]string{"postgres", "postgresql", "redis", "rediss", "sqlite"}, scheme) {
		f.source.wrong(path, "expected a path or an address that begins with sqlite:, postgres://, redis:// or memory:")
	}
}

// because returns an error's message without its code.
func because(err error) string { return session.AsError(err).Message }

func (f *File) checkRuntime() {
	// gRPC also accepts an address with a resolver.
	f.checkHostPort("runtime.temporal.address", strings.TrimPrefix(f.Runtime.Temporal.Address, "dns:///"), "127.0.0.1:7233")
	d, path := &f.Runtime.DBOS, "runtime.dbos"
	if d.Database != "" && !slices.Contains([]string{"postgres", "postgresql", "sqlite"}, scheme(d.Database)) {
		f.source.wrong(path+".database", "expected an address that begins with postgres:// or sqlite:")
	}
	if d.Prefix != "" && !dbosPrefix.MatchString(d.Prefix) {
		f.source.wrong(path+".prefix", "expected 3 to 64 lower-case letters, digits, dashes and underscores")
	}
	q := d.Queue
	switch {
	case q == nil:
	case q.Concurrency > 0 && q.WorkerConcurrency > q.Concurrency:
		f.source.wrong(path+".queue.workerConcurrency", "expected no more than concurrency, which is %d", q.Concurrency)
	case q.RatePeriod != 0 && q.RateLimit == 0 && !f.damaged(path+".queue.rateLimit"):
		f.source.wrong(path+".queue.ratePeriod", "expected a rateLimit, too")
	}
}

// dbosPrefix matches what DBOS accepts as the name of an application.
var dbosPrefix = regexp.MustCompile(`^[a-z0-9_-]{3,64}$`)

func scheme(address string) string {
	before, _, _ := strings.Cut(address, ":")
	return before
}
