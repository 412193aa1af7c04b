package scripted

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// play replies to one request with a step. take is 1 unless the reply must differ from an
// earlier one.
func (s Step) play(ctx context.Context, emit func(llm.Delta), take int) (*llm.Response, error) {
	if emit == nil {
		emit = func(llm.Delta) {}
	}
	p := player{settings: s.settings, emit: emit}
	for _, part := range varied(s.parts, take) {
		if part.fail != nil {
			return nil, part.fail
		}
		if err := p.part(ctx, part); err != nil {
			return p.partial(), err
		}
	}
	return p.response(), nil
}

// varied makes a repeated reply distinguishable: its last text, or a new one, contains the
// number of the take.
func varied(parts []Part, take int) []Part {
	if take < 2 {
		return parts
	}
	mark := fmt.Sprintf("(take %d)", take)
	out := append([]Part(nil), parts...)
	for i := len(out) - 1; i >= 0; i-- {
		if c := &out[i].content; c.Kind == session.PartText && c.Text != "" {
			c.Text += " " + mark
			return out
		}
	}
	if !hasContent(out) {
		return out
	}
	return append([]Part{Say(mark)}, out...)
}

func hasContent(parts []Part) bool {
	for i := range parts {
		if parts[i].content.Kind != "" {
			return true
		}
	}
	return false
}

// player is a reply in progress.
type player struct {
	settings
	emit  func(llm.Delta)
	parts []session.Part
	text  strings.Builder // of the last part, while it arrives
	calls int
}

// part plays one part. It fails only when ctx ends.
func (p *player) part(ctx context.Context, part Part) error {
	switch {
	case part.wait != nil:
		part.wait(ctx.Done())
	case part.do != nil:
		part.do()
	case part.content.Kind == session.PartText:
		return p.say(ctx, part.content, llm.DeltaText)
	case part.content.Kind == session.PartReasoning:
		return p.say(ctx, part.content, llm.DeltaReasoning)
	case part.content.Kind == session.PartToolCall:
		return p.call(ctx, part.content)
	case part.content.Kind != "":
		p.begin(part.content)
	}
	return ctx.Err()
}

// say streams text. It is joined with the part before it if that has the same kind.
func (p *player) say(ctx context.Context, part session.Part, kind llm.DeltaKind) error {
	text := part.Text
	part.Text = ""
	if n := len(p.parts); n == 0 || p.parts[n-1].Kind != part.Kind || p.parts[n-1].Provider != nil || part.Provider != nil {
		p.begin(part)
	}
	for piece := range p.pieces(text) {
		if err := p.pause(ctx); err != nil {
			return err
		}
		p.text.WriteString(piece)
		p.emit(llm.Delta{Kind: kind, Text: piece})
	}
	return nil
}

// call streams a call. It is added to the reply once it is complete.
func (p *player) call(ctx context.Context, part session.Part) error {
	index := p.calls
	p.calls++
	p.emit(llm.Delta{Kind: llm.DeltaCallStart, Index: index, Tool: part.Tool})
	for piece := range p.pieces(string(part.Input)) {
		if err := p.pause(ctx); err != nil {
			return err
		}
		p.emit(llm.Delta{Kind: llm.DeltaCallArgs, Index: index, Text: piece})
	}
	p.emit(llm.Delta{Kind: llm.DeltaCallEnd, Index: index})
	if part.ProviderCallID == "" {
		part.ProviderCallID = "scripted_" + rand.Text()
	}
	p.begin(part)
	return nil
}

// begin completes the last part and starts another.
func (p *player) begin(part session.Part) {
	p.flush()
	p.parts = append(p.parts, part)
}

func (p *player) flush() {
	if p.text.Len() > 0 {
		p.parts[len(p.parts)-1].Text = p.text.String()
		p.text.Reset()
	}
}

// pause waits before the next piece and returns an error when ctx ends.
func (p *player) pause(ctx context.Context) error {
	if p.pace > 0 {
		Wait(p.pace).wait(ctx.Done())
	}
	return ctx.Err()
}

func (p *player) response() *llm.Response {
	p.flush()
	usage := session.Usage{InputTokens: 10, OutputTokens: 5}
	if p.usage != nil {
		usage = *p.usage
	}
	finish := p.finish
	if finish == "" {
		finish = llm.FinishStop
		if p.calls > 0 {
			finish = llm.FinishToolCalls
		}
	}
	return &llm.Response{Parts: p.parts, Finish: finish, Usage: usage, Model: "scripted"}
}

// partial returns what has arrived of a cancelled reply, or nil. It omits a call with
// incomplete arguments.
func (p *player) partial() *llm.Response {
	p.finish = llm.FinishOther
	out := p.response()
	if n := len(out.Parts); n > 0 && isText(out.Parts[n-1].Kind) && out.Parts[n-1].Text == "" {
		out.Parts = out.Parts[:n-1] // announced, but empty
	}
	if len(out.Parts) == 0 {
		return nil
	}
	return out
}

func isText(kind session.PartKind) bool {
	return kind == session.PartText || kind == session.PartReasoning
}

// pieces splits a text between runes.
func (p *player) pieces(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		size := p.pieceSize
		if size <= 0 {
			size = (utf8.RuneCountInString(text) + 2) / 3
		}
		for text != "" {
			end := runes(text, size)
			if p.byWord {
				end = wordEnd(text)
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}

// runes returns the length in bytes of the first n runes of text.
func runes(text string, n int) int {
	end := 0
	for ; n > 0 && end < len(text); n-- {
		_, width := utf8.DecodeRuneInString(text[end:])
		end += width
	}
	return end
}

// wordEnd returns the length of the first word of text with the space after it.
func wordEnd(text string) int {
	space := strings.IndexAny(text, " \n")
	if space < 0 {
		return len(text)
	}
	return space + len(text[space:]) - len(strings.TrimLeft(text[space:], " \n"))
}
