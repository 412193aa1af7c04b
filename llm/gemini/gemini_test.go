package gemini_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/gemini"
	"github.com/helixagents/helix/llm/llmtest"
	"github.com/helixagents/helix/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(recording.Main(m)) }

func TestWire(t *testing.T) {
	t.Parallel()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	llmtest.Run(t, llmtest.Provider{
		Name: "gemini",
		New: func(baseURL, key string) llm.Model {
			return gemini.New(gemini.Config{Model: llmtest.AskedModel, APIKey: key, BaseURL: baseURL, HTTPClient: client})
		},
		Exchanges: os.DirFS("testdata"),
		Answers: map[string]llmtest.Answer{
			"auth":         {Status: http.StatusBadRequest},
			"rate-limited": {Header: http.Header{"Retry-After": nil}}, // it is in the body
		},
		Decode:  decode,
		Options: json.RawMessage(`{"safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE"}]}`),
		Cannot: []llmtest.Feature{
			llmtest.ArgumentPieces, llmtest.MalformedArguments, llmtest.StrictTools,
			llmtest.CachePrefix, llmtest.CacheLatestTurn, llmtest.CacheTTL, llmtest.CacheWrites,
		},
		OnRequest: recording.Request, OnOutcome: recording.Outcome,
	})
}

// wire is a request as the API documents it.
type wire struct {
	Contents          json.RawMessage `json:"contents"`
	SystemInstruction json.RawMessage `json:"systemInstruction"`
	Tools             json.RawMessage `json:"tools"`
	ToolConfig        struct {
		FunctionCallingConfig struct {
			Mode                 string   `json:"mode"`
			AllowedFunctionNames []string `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	GenerationConfig struct {
		MaxOutputTokens  int      `json:"maxOutputTokens"`
		Temperature      *float64 `json:"temperature"`
		TopP             *float64 `json:"topP"`
		TopK             *int     `json:"topK"`
		PresencePenalty  *float64 `json:"presencePenalty"`
		FrequencyPenalty *float64 `json:"frequencyPenalty"`
		StopSequences    []string `json:"stopSequences"`
		Seed             *int64   `json:"seed"`
	} `json:"generationConfig"`
}

type wireContent struct {
	Role  string     `json:"role"`
	Parts []wirePart `json:"parts"`
}

type wirePart struct {
	Text             string `json:"text"`
	Thought          bool   `json:"thought"`
	ThoughtSignature string `json:"thoughtSignature"`
	InlineData       *struct {
		MIMEType string `json:"mimeType"`
		Data     string `json:"data"`
	} `json:"inlineData"`
	FileData *struct {
		MIMEType string `json:"mimeType"`
		FileURI  string `json:"fileUri"`
	} `json:"fileData"`
	FunctionCall *struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall"`
	FunctionResponse *struct {
		ID       string                     `json:"id"`
		Name     string                     `json:"name"`
		Response map[string]json.RawMessage `json:"response"`
	} `json:"functionResponse"`
}

func decode(path string, header http.Header, body []byte) (llmtest.Sent, error) {
	model, stream := strings.CutSuffix(strings.TrimPrefix(path, "/v1beta/models/"), ":streamGenerateContent?alt=sse")
	sent := llmtest.Sent{Key: header.Get("X-Goog-Api-Key"), Model: model, Stream: stream}
	var in wire
	if err := errors.Join(json.Unmarshal(body, &in), json.Unmarshal(body, &sent.Options)); err != nil {
		return sent, err
	}
	sent.Transcript = in.Contents
	sent.Fixed = append(append(sent.Fixed, in.SystemInstruction...), in.Tools...)
	c := &in.GenerationConfig
	sent.Settings = llm.Settings{
		MaxOutputTokens: c.MaxOutputTokens, Temperature: c.Temperature, TopP: c.TopP, TopK: c.TopK,
		PresencePenalty: c.PresencePenalty, FrequencyPenalty: c.FrequencyPenalty, StopSequences: c.StopSequences, Seed: c.Seed,
	}
	switch f := &in.ToolConfig.FunctionCallingConfig; {
	case f.Mode == "ANY" && len(f.AllowedFunctionNames) == 1:
		sent.ToolChoice = llm.ToolChoice{Mode: llm.ToolNamed, Name: f.AllowedFunctionNames[0]}
	case f.Mode == "ANY":
		sent.ToolChoice.Mode = llm.ToolRequired
	case f.Mode == "NONE":
		sent.ToolChoice.Mode = llm.ToolNone
	}
	if err := decodeFixed(&in, &sent); err != nil {
		return sent, err
	}
	var contents []wireContent
	if err := json.Unmarshal(in.Contents, &contents); err != nil {
		return sent, err
	}
	for _, content := range contents {
		for i := range content.Parts {
			part, err := decodePart(content.Role, &content.Parts[i])
			if err != nil {
				return sent, err
			}
			sent.Parts = append(sent.Parts, part)
		}
	}
	return sent, nil
}

func decodeFixed(in *wire, sent *llmtest.Sent) error {
	if in.SystemInstruction != nil {
		var system wireContent
		if err := json.Unmarshal(in.SystemInstruction, &system); err != nil {
			return err
		}
		sent.Instructions = system.Parts[0].Text
	}
	if in.Tools == nil {
		return nil
	}
	var tools []struct {
		FunctionDeclarations []struct {
			Name                 string          `json:"name"`
			Description          string          `json:"description"`
			ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	}
	if err := json.Unmarshal(in.Tools, &tools); err != nil {
		return err
	}
	for _, tool := range tools {
		for _, f := range tool.FunctionDeclarations {
			sent.Tools = append(sent.Tools, llm.Tool{Name: f.Name, Description: f.Description, Schema: f.ParametersJSONSchema})
		}
	}
	return nil
}

func decodePart(role string, in *wirePart) (llmtest.SentPart, error) {
	out := llmtest.SentPart{Role: session.RoleUser}
	if role == "model" {
		out.Role = session.RoleAssistant
	}
	if in.ThoughtSignature != "" {
		out.Provider = session.AppendString(nil, in.ThoughtSignature)
	}
	switch {
	case in.FunctionCall != nil:
		out.Kind, out.Tool, out.ProviderCallID = session.PartToolCall, in.FunctionCall.Name, in.FunctionCall.ID
		out.Input = in.FunctionCall.Args
	case in.FunctionResponse != nil:
		out.Role = session.RoleTool
		out.Kind, out.Tool, out.ProviderCallID = session.PartToolResult, in.FunctionResponse.Name, in.FunctionResponse.ID
		value, ok := in.FunctionResponse.Response["output"]
		if !ok {
			out.Error = &session.Error{}
			value = in.FunctionResponse.Response["error"]
		}
		if json.Unmarshal(value, &out.Text) != nil {
			out.Text = string(value)
		}
	case in.InlineData != nil:
		out.Kind, out.MediaType = session.PartFile, in.InlineData.MIMEType
		out.URL = "data:" + in.InlineData.MIMEType + ";base64," + in.InlineData.Data
	case in.FileData != nil:
		out.Kind, out.MediaType, out.URL = session.PartFile, in.FileData.MIMEType, in.FileData.FileURI
	case in.Thought:
		out.Kind, out.Text = session.PartReasoning, in.Text
	case in.Text != "" || in.ThoughtSignature != "":
		out.Kind, out.Text = session.PartText, in.Text
	default:
		return out, errors.New("a part without content")
	}
	return out, nil
}
