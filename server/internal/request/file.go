package request

import (
	"net/url"
	"strings"

	"github.com/helixagents/helix/session"
)

// Limits of a file in a message, in bytes. A data URL is as long as the body allows.
const (
	MaxURL       = 8 << 10
	MaxMediaType = 256
	MaxFilename  = 1 << 10
)

// CheckFile reports a file that a user's message may not have; path names its part.
//
// A model's provider, or a server that offers models in the same network, fetches
// what a URL names. So a user may name what the public web serves, over https, or
// send the file itself as a data URL; remote says whether the former is allowed.
func CheckFile(path, address, mediaType, filename string, remote bool) error {
	if err := checkURL(path+".url", address, remote); err != nil {
		return err
	}
	for _, f := range []struct {
		name, text string
		limit      int
	}{{"mediaType", mediaType, MaxMediaType}, {"filename", filename, MaxFilename}} {
		if f.text == "" && f.name == "filename" {
			continue
		}
		if len(f.text) > f.limit {
			return session.Invalid(path+"."+f.name, "has %d bytes, at most %d are allowed", len(f.text), f.limit)
		}
		if err := printable(path+"."+f.name, f.text); err != nil {
			return err
		}
	}
	return nil
}

func checkURL(field, address string, remote bool) error {
	scheme, _, _ := strings.Cut(address, ":")
	switch {
	case address == "":
		return session.Invalid(field, "must not be empty")
	case strings.EqualFold(scheme, "data") && len(scheme) < len(address):
		return session.CheckText(field, address)
	case !strings.EqualFold(scheme, "https"):
		return session.Invalid(field, "must be a data: or https: URL")
	case !remote:
		return session.Invalid(field, "must be a data: URL; this server accepts no files from other servers")
	case len(address) > MaxURL:
		return session.Invalid(field, "has %d bytes, at most %d are allowed", len(address), MaxURL)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "": // the error's text repeats the URL
		return session.Invalid(field, "is not a URL such as https://example.com/picture.png")
	case u.User != nil:
		return session.Invalid(field, "must not contain a user or a password")
	}
	return session.CheckText(field, address)
}

// printable refuses text that cannot be on one line of a header or a list.
func printable(field, text string) error {
	if text == "" {
		return session.Invalid(field, "must not be empty")
	}
	for _, r := range text {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return session.Invalid(field, "%.40q contains a control or invalid character", text)
		}
	}
	return nil
}
