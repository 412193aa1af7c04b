package openai

import (
	"slices"
	"strings"

	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// How a file is sent.
type fileKind int

const (
	fileUnknown fileKind = iota // not at all
	fileImage
	fileDocument
	fileText
	fileAudio
)

// imageTypes are the pictures that the APIs take.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

func kindOf(mediaType string) fileKind {
	switch {
	case slices.Contains(imageTypes, mediaType):
		return fileImage
	case strings.HasPrefix(mediaType, "audio/"):
		return fileAudio
	case provider.IsText(mediaType):
		return fileText
	case mediaType == "application/pdf", mediaType == "application/msword", mediaType == "application/rtf",
		strings.HasPrefix(mediaType, "application/vnd.openxmlformats"), strings.HasPrefix(mediaType, "application/vnd.ms-"):
		return fileDocument
	}
	return fileUnknown
}

// dataURL is the URL of a file whose content is in it, in base64.
func dataURL(part *session.Part) (string, bool) {
	if !provider.IsDataURL(part.URL) {
		return "", false
	}
	_, content, err := provider.Base64(part.URL)
	return "data:" + part.MediaType + ";base64," + content, err == nil
}

// fileName is a name for a document, which the APIs want for its ending.
func fileName(part *session.Part) string {
	switch {
	case part.Filename != "":
		return part.Filename
	case part.MediaType == "application/pdf":
		return "file.pdf"
	}
	return "file"
}
