package skills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
)

const loadDescription = "Loads a skill: returns its instructions and the list of its files. " +
	"Call it before you work on a task that matches the description of a skill."

// loadTool returns the tool that loads a skill. The names are part of its schema, so that a
// model does not make up others.
func (x *Extension) loadTool(o *offer) helix.Tool {
	name := map[string]any{"type": "string", "description": "The name of the skill."}
	if len(o.list) > 0 {
		names := make([]string, len(o.list))
		for i, m := range o.list {
			names[i] = m.Name
		}
		name["enum"] = names
	}
	return helix.Tool{
		Name: LoadTool, Description: loadDescription, ReadOnly: true,
		Execute: helix.RawFunc(inputSchema(map[string]any{"name": name}, "name"),
			func(ctx context.Context, call *helix.Call, input json.RawMessage) (json.RawMessage, error) {
				var in struct{ Name string }
				if err := json.Unmarshal(input, &in); err != nil {
					return nil, err
				}
				text, err := x.load(ctx, o, call, in.Name)
				if err != nil {
					return nil, err
				}
				return session.Encode(text)
			}),
	}
}

// inputSchema returns the schema of an object. Encoding a map sorts its keys, so equal
// properties give equal bytes.
func inputSchema(properties map[string]any, required ...string) json.RawMessage {
	raw, _ := json.Marshal(map[string]any{ //nolint:errchkjson // maps and strings only
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	})
	return raw
}

// load returns the content of a skill, or that the model has it already.
func (x *Extension) load(ctx context.Context, o *offer, call *helix.Call, name string) (string, error) {
	s, err := x.fetch(ctx, scopeOf(&call.Scope), name)
	if err != nil {
		return "", x.failure(ctx, name, err)
	}
	if where, ok := o.has(call.View(), s); ok {
		return fmt.Sprintf("The skill %s is loaded already and has not changed. Its instructions are %s: follow them.", name, where), nil
	}
	access.EmitOwn(&call.Scope, LoadedEvent, Loaded{name})
	return x.content(s), nil
}

// isNotFound reports whether a skill or a file does not exist.
func isNotFound(err error) bool { return errors.Is(err, session.ErrNotFound) }
