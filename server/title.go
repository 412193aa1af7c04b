package server

import (
	"cmp"
	"maps"
	"strings"
	"unicode"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

const (
	// titleKey is the metadata under which lists have what a conversation is about.
	titleKey = "title"
	// maxTitle limits the characters of a title.
	maxTitle = 80
)

// addTitle gives a new session a title, the beginning of its first message or else the name of
// its first file, unless the client has set one.
func (x *exchange) addTitle(in *helix.Input) {
	if _, ok := in.Metadata[titleKey]; ok || len(in.Metadata) >= x.server.cfg.Limits.Metadata {
		return
	}
	all := in.Messages
	if len(in.Message.Parts) > 0 {
		all = append([]session.Message{in.Message}, all...)
	}
	for i := range all {
		if all[i].Role != session.RoleUser {
			continue
		}
		if title := cmp.Or(titleOf(all[i].Content()), titleOf(firstFile(all[i].Parts))); title != "" {
			metadata := maps.Clone(in.Metadata)
			if metadata == nil {
				metadata = map[string]string{}
			}
			metadata[titleKey] = title
			in.Metadata = metadata
			return
		}
	}
}

func firstFile(parts []session.Part) string {
	for i := range parts {
		if parts[i].Kind == session.PartFile && parts[i].Filename != "" {
			return parts[i].Filename
		}
	}
	return ""
}

// titleOf returns the beginning of a text on one line.
func titleOf(text string) string {
	var title strings.Builder
	n, space := 0, false
	for _, r := range text {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			space = n > 0
			continue
		}
		if unicode.Is(unicode.Cf, r) && r != '\u200c' && r != '\u200d' { // it has no width, or reverses what is around it
			continue
		}
		if space {
			title.WriteByte(' ')
			n, space = n+1, false
		}
		title.WriteRune(r)
		if n++; n > maxTitle {
			cut := []rune(title.String())[:maxTitle-1]
			return strings.TrimRight(string(cut), " ") + "…"
		}
	}
	return title.String()
}
