package skills

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// Check implements [helix.Gate]. With [Restrict] it refuses calls of tools that the loaded
// skills do not list. It permits nothing that would not happen without it: approvals, and
// the gates of other extensions, are asked all the same.
func (x *Extension) Check(ctx context.Context, call *helix.Call) error {
	if x.cfg.AllowedTools != Restrict || call.Tool == LoadTool || call.Tool == ReadTool || call.Tool == helix.ReadResultTool {
		return nil
	}
	by, tools, err := x.restricted(ctx, call)
	if err != nil {
		return err
	}
	if len(by) == 0 || slices.ContainsFunc(tools, func(pattern string) bool { return allows(pattern, call) }) {
		return nil
	}
	return fmt.Errorf("the loaded skill %s allows only these tools: %s", strings.Join(by, ", "), strings.Join(tools, ", "))
}

// restricted returns the skills in force that list tools, and the tools.
func (x *Extension) restricted(ctx context.Context, call *helix.Call) (by, tools []string, err error) {
	add := func(name string, list []string) {
		if len(list) == 0 {
			return
		}
		if !slices.Contains(by, name) {
			by = append(by, name)
		}
		for _, tool := range list {
			if !slices.Contains(tools, tool) {
				tools = append(tools, tool)
			}
		}
	}
	if len(x.cfg.Preload) > 0 {
		scope := scopeOf(&call.Scope)
		o, err := x.offered(ctx, scope, true, checkLimit)
		if o == nil {
			x.cfg.Logger.WarnContext(ctx, "skill.failed", "error", err)
			return nil, nil, session.ErrUnavailable.WithMessage("the tools that the skills allow are not known at the moment")
		}
		for _, m := range o.list {
			_, active := o.preloaded[m.Name]
			// What cannot be loaded at the moment may have been when the turn began.
			if active || o.partial && slices.Contains(x.cfg.Preload, m.Name) {
				add(m.Name, m.AllowedTools)
			}
		}
	}
	view := call.View()
	for _, name := range inForce(view) {
		if b := lastBlock(view, name); b != nil {
			add(name, b.tools)
		}
	}
	return by, tools, nil
}

// inForce returns the skills that were loaded since the user's last message, that the user
// chose with it, and that were asked for again since then, although the model had them.
func inForce(view []session.Message) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	calls := map[string]string{}
	for i := lastAsked(view); i < len(view); i++ {
		m := &view[i]
		for _, b := range blocksIn(m) {
			if m.Compaction() == nil || b.current {
				add(b.name)
			}
		}
		if m.Role == session.RoleUser && !m.Hidden() {
			for _, name := range m.Skills() {
				add(name)
			}
		}
		for j := range m.Parts {
			switch p := &m.Parts[j]; {
			case p.Kind == session.PartToolCall && p.Tool == LoadTool:
				calls[p.CallID] = nameIn(p.Input)
			case loads(p):
				add(calls[p.CallID])
			}
		}
	}
	return names
}

// nameIn returns the name of the skill that a call is about.
func nameIn(input json.RawMessage) string {
	var in struct{ Name string }
	if json.Unmarshal(input, &in) != nil {
		return ""
	}
	return in.Name
}

// lastAsked returns the index of the user's last message that people see, or of the first
// one if there are several in a row. It is 0 if a summary has taken its place.
func lastAsked(view []session.Message) int {
	asked := func(i int) bool { return view[i].Role == session.RoleUser && !view[i].Hidden() }
	for i := range slices.Backward(view) {
		if !asked(i) {
			continue
		}
		for i > 0 && asked(i-1) {
			i--
		}
		return i
	}
	return 0
}

// shell is the tool that runs commands in a workspace. Skills know it as Bash.
const (
	shell     = "workspace_run"
	shellName = "Bash"
)

// allows reports whether an entry of a skill's list allows a call: the name of a tool; Bash
// for workspace_run; Bash(git status) for that command; Bash(git:*) for commands that begin
// with git.
func allows(pattern string, call *helix.Call) bool {
	if pattern == call.Tool {
		return true
	}
	if call.Tool != shell {
		return false
	}
	if pattern == shellName {
		return true
	}
	inner, ok := strings.CutPrefix(pattern, shellName+"(")
	if !ok || !strings.HasSuffix(inner, ")") {
		return false
	}
	inner = strings.TrimSuffix(inner, ")")
	var in struct{ Command string }
	if json.Unmarshal(call.Input, &in) != nil {
		return false
	}
	command := strings.TrimSpace(in.Command)
	prefix, isPrefix := strings.CutSuffix(inner, "*")
	if !isPrefix {
		return inner != "" && command == strings.TrimSpace(inner)
	}
	prefix = strings.TrimSpace(strings.TrimSuffix(prefix, ":"))
	if prefix == "" {
		return true // Bash(*)
	}
	return single(command) && (command == prefix || strings.HasPrefix(command, prefix+" "))
}

// single reports whether a command is one command: nothing in it makes a shell run another
// one, or write to a file, behind the prefix that is allowed.
func single(command string) bool { return !strings.ContainsAny(command, ";|&<>`$()\n\r") }
