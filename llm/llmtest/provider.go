package llmtest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
)

// Provider is an adapter under test and what the suite has to know about it.
type Provider struct {
	Name string
	// New returns a model that sends to baseURL with a key. The model's name is
	// [AskedModel].
	New func(baseURL, key string) llm.Model
	// Exchanges has the recordings.
	Exchanges fs.FS
	// Answers has the status and the headers of recordings that differ from the
	// case's own, by case.
	Answers map[string]Answer
	// Decode reads a request as it was sent.
	Decode func(path string, header http.Header, body []byte) (Sent, error)
	// Cannot lists the features that the provider does not have. The adapter must leave
	// them out of its requests without an error.
	Cannot []Feature
	// Options are provider options that [Sent.Options] must show again.
	Options json.RawMessage
	// CacheMarks are the texts with which a request marks what is to be cached. They may
	// move from request to request; nothing else may change in the part that was sent
	// before.
	CacheMarks []string
	// OnRequest, if set, is called with every request that arrives, and OnOutcome with the
	// outcome of each recording, so that a provider can compare them with its own
	// recordings. OnRequest is called from several goroutines.
	OnRequest func(t testing.TB, request *http.Request, body []byte)
	OnOutcome func(t testing.TB, response *llm.Response, deltas []llm.Delta, err error)

	// patience is how long a call may take to notice that its context has ended. Defaults to
	// [eventually.Patience]; the suite's own tests of a call that never does have less.
	patience time.Duration
}

// Answer is how a recording is sent.
type Answer struct {
	Status int
	Header http.Header
}

// The names of the model that is asked and of the one that answers in every
// recording: a provider answers with a version of what it was asked for.
const (
	AskedModel     = "test-model"
	AnsweringModel = "test-model-001"
)

// Signature is what the reasoning of the recordings is signed with.
const Signature = "c2lnbmVkLWJ5LXRoZS1tb2RlbA=="

// Feature is something that not every provider can do.
type Feature string

// The features.
const (
	Reasoning          Feature = "reasoning streamed"
	ReasoningReturned  Feature = "reasoning sent back with its signature"
	ArgumentPieces     Feature = "tool arguments streamed in pieces"
	MalformedArguments Feature = "malformed arguments reach the engine"
	ToolRequired       Feature = "tool choice: required"
	ToolNamed          Feature = "tool choice: named"
	ToolNone           Feature = "tool choice: none"
	StrictTools        Feature = "strict tools and output"
	ErrorResults       Feature = "failed tool results marked"
	Images             Feature = "images in messages"
	PDFs               Feature = "PDF files in messages"
	CachePrefix        Feature = "cache mark on instructions"
	CacheLatestTurn    Feature = "cache mark on latest tool results"
	CacheTTL           Feature = "cache TTL"
	CacheReads         Feature = "usage: cached tokens read"
	CacheWrites        Feature = "usage: cached tokens written"
	ReasoningTokens    Feature = "usage: reasoning tokens"
	MaxTokens          Feature = "setting: max output tokens"
	Temperature        Feature = "setting: temperature"
	TopP               Feature = "setting: top p"
	TopK               Feature = "setting: top k"
	PresencePenalty    Feature = "setting: presence penalty"
	FrequencyPenalty   Feature = "setting: frequency penalty"
	StopSequences      Feature = "setting: stop sequences"
	Seed               Feature = "setting: seed"
	Overloaded         Feature = "errors: overload distinguished from a rate limit"
	RetryAfter         Feature = "errors: time to wait"
	StreamErrors       Feature = "errors within a stream"
	SafetyStop         Feature = "content filter reported"
)

// Features returns all features in the order of the matrix.
func Features() []Feature {
	return []Feature{
		Reasoning, ReasoningReturned, ArgumentPieces, MalformedArguments, ToolRequired, ToolNamed, ToolNone, StrictTools,
		ErrorResults, Images, PDFs, CachePrefix, CacheLatestTurn, CacheTTL, CacheReads, CacheWrites, ReasoningTokens,
		MaxTokens, Temperature, TopP, TopK, PresencePenalty, FrequencyPenalty, StopSequences, Seed,
		Overloaded, RetryAfter, StreamErrors, SafetyStop,
	}
}

// Can reports whether a provider has a feature.
func (p *Provider) Can(f Feature) bool { return !slices.Contains(p.Cannot, f) }

// Matrix returns the table of what providers can do, in Markdown.
func Matrix(providers ...Provider) string {
	var b strings.Builder
	b.WriteString("| feature |")
	for i := range providers {
		b.WriteString(" " + providers[i].Name + " |")
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(providers)) + "\n")
	for _, f := range Features() {
		fmt.Fprintf(&b, "| %s |", f)
		for i := range providers {
			if providers[i].Can(f) {
				b.WriteString(" yes |")
			} else {
				b.WriteString(" – |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Run tests an adapter against everything that package llm promises, at the wire.
func Run(t *testing.T, p Provider) {
	t.Log("\n" + Matrix(p))
	for _, f := range p.Cannot {
		if !slices.Contains(Features(), f) {
			t.Errorf("%q is not a feature", f)
		}
	}
	for _, c := range suite() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if f := c.missing(&p); f != "" {
				t.Skipf("%s has no %s", p.Name, f)
			}
			c.run(t, &p)
		})
	}
}

// testCase is one promise and how to see that it is kept.
type testCase struct {
	name  string
	needs []Feature
	run   func(t testing.TB, p *Provider)
}

func (c *testCase) missing(p *Provider) Feature {
	for _, f := range c.needs {
		if !p.Can(f) {
			return f
		}
	}
	return ""
}

func suite() []testCase {
	var all []testCase
	all = append(all, replyCases()...)
	all = append(all, failureCases()...)
	all = append(all, variantCases()...)
	all = append(all, requestCases()...)
	return all
}
