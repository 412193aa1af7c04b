package bake

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/helixagents/helix/skill"
)

// remote is the address of a repository, which was checked.
type remote struct {
	url    string
	scheme string // https, ssh, http or file
	// stranger is set for a host that a marketplace has named, and the user has not. It gets
	// none of the user's credentials.
	stranger bool
}

// local reports whether the repository is on this machine.
func (r remote) local() bool { return r.scheme == "file" || r.scheme == "http" }

const maxURL = 1024

var (
	// scpAddress is user@host:path. The user is required, so that neither a drive nor a
	// transport such as ext:: looks like one.
	scpAddress = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[A-Za-z0-9~/._][^:]*$`)
	hostName   = regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*)(:[0-9]{1,5})?$`)
	userName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	// refName is a subset of what git allows that no shell, pattern or option knows about.
	refName     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/@+-]*$`)
	versionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)
	shaName     = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	pluginName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// parseRemote checks the address of a repository. What it accepts can be an argument of git
// and of ssh: it never begins with a hyphen.
func parseRemote(raw string, allowLocal bool) (remote, error) {
	switch {
	case len(raw) > maxURL:
		return remote{}, fmt.Errorf("has %d bytes; at most %d are allowed", len(raw), maxURL)
	case strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return remote{}, fmt.Errorf("%s has characters that are not allowed in a URL", quote(raw))
	case scpAddress.MatchString(raw):
		return remote{url: raw, scheme: "ssh"}, nil
	case strings.HasPrefix(raw, "/") || strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../"):
		return localRemote(raw, allowLocal)
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || !strings.Contains(raw, "://") {
		return remote{}, fmt.Errorf("%s is not the URL of a repository; use https://host/path, ssh://user@host/path or user@host:path", quote(raw))
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(raw, "#") {
		return remote{}, fmt.Errorf("%s has a query or a fragment", quote(raw))
	}
	if u.Scheme == "file" {
		if u.Host != "" || u.Path == "" {
			return remote{}, fmt.Errorf("%s is not the URL of a directory; use file:///path", quote(raw))
		}
		return localRemote(raw, allowLocal)
	}
	if !hostName.MatchString(u.Host) || strings.Trim(u.Path, "/") == "" {
		return remote{}, fmt.Errorf("%s has no host or no path", quote(raw))
	}
	return networkRemote(raw, u)
}

func networkRemote(raw string, u *url.URL) (remote, error) {
	switch u.Scheme {
	case "https", "http":
		if u.User != nil {
			return remote{}, errors.New("has a user or a password, which would become part of the lock; keep it in a credential helper of git")
		}
	case "ssh":
		if _, secret := u.User.Password(); secret || u.User != nil && !userName.MatchString(u.User.Username()) {
			return remote{}, errors.New("has a password or a user that is not allowed")
		}
	default:
		return remote{}, fmt.Errorf("%s has the scheme %s; use https or ssh", quote(raw), quote(u.Scheme))
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return remote{}, fmt.Errorf("%s is not encrypted; use https (http is for this machine only)", quote(raw))
	}
	return remote{url: raw, scheme: u.Scheme}, nil
}

func localRemote(raw string, allowed bool) (remote, error) {
	if !allowed {
		return remote{}, fmt.Errorf("%s is a repository on this machine; --allow-local permits that", quote(raw))
	}
	return remote{url: raw, scheme: "file"}, nil
}

// from returns the remote for use by a program in another directory: a relative path is one
// from dir.
func (r remote) from(dir string) remote {
	if strings.HasPrefix(r.url, ".") {
		r.url = filepath.Join(dir, filepath.FromSlash(r.url))
	}
	return r
}

// host returns the host, with the port if it is not the usual one, in lower case. A file has
// none.
func (r remote) host() string {
	var host string
	if at, rest, ok := strings.Cut(r.url, "@"); ok && !strings.Contains(at, "/") { // user@host:path
		host, _, _ = strings.Cut(rest, ":")
	} else if u, err := url.Parse(r.url); err == nil {
		host = u.Host
		if port := u.Port(); port != "" && port == map[string]string{"https": "443", "http": "80", "ssh": "22"}[r.scheme] {
			host = strings.TrimSuffix(host, ":"+port)
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// private reports whether the host is this machine or an address of a private network, in
// any way to write it.
func (r remote) private() bool {
	host := (&url.URL{Host: r.host()}).Hostname()
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return !addr.Unmap().IsGlobalUnicast() || addr.Unmap().IsPrivate()
	}
	// Old ways to write an address, such as 127.1 and 0x7f000001, end with a number.
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && last[0] >= '0' && last[0] <= '9'
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

func checkRef(ref string) error {
	switch {
	case len(ref) > 200 || !refName.MatchString(ref):
		return fmt.Errorf("%s is not the name of a tag or a branch; a name consists of letters, digits and ._/@+-, and does not begin with a hyphen", quote(ref))
	case strings.Contains(ref, "..") || strings.Contains(ref, "//") || strings.Contains(ref, "/.") || strings.Contains(ref, "@{") ||
		strings.HasSuffix(ref, "/") || strings.HasSuffix(ref, ".") || strings.HasSuffix(ref, ".lock") || strings.Contains(ref, ".lock/"):
		return fmt.Errorf("%s is not the name of a tag or a branch", quote(ref))
	case shaName.MatchString(ref):
		return errors.New("is a commit; give it as sha")
	}
	return nil
}

func checkVersion(version string) error {
	if len(version) > 100 || !versionName.MatchString(version) || checkRef(version) != nil {
		return fmt.Errorf("%s is not a version such as 1.2.0", quote(version))
	}
	return nil
}

func checkSHA(sha string) error {
	if !shaName.MatchString(sha) {
		return fmt.Errorf("%s is not the id of a commit; it has 40 or 64 hexadecimal digits in lower case", quote(sha))
	}
	return nil
}

func checkPlugin(name string) error {
	if !pluginName.MatchString(name) {
		return fmt.Errorf("%s is not the name of a plugin", quote(name))
	}
	return nil
}

// checkDir checks the path of a directory in a repository; "." is the repository itself.
func checkDir(dir string) error {
	if dir == "." {
		return nil
	}
	if err := skill.CheckPath(dir); err != nil {
		return fmt.Errorf("%s is not a directory of the repository; it must be relative, without . and .. in it", quote(dir))
	}
	return nil
}
