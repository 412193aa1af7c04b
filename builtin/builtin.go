// Package builtin has tools that need nothing but Helix: the time, a calculator, a
// wait, and notes that are kept in the session's state.
//
//	agent.Tools = []helix.Tool{builtin.Time(), builtin.Calculator()}
//
// Each comes with a name and a description, which may be changed, as may everything
// else that a [helix.Tool] has.
package builtin

import (
	"context"
	"time"

	"github.com/helixagents/helix"
)

// Names returns the names that [Named] knows.
func Names() []string {
	names := make([]string, len(all))
	for i, b := range all {
		names[i] = b.name
	}
	return names
}

// Named returns the tool with the given name.
func Named(name string) (helix.Tool, bool) {
	for _, b := range all {
		if b.name == name {
			return b.tool(), true
		}
	}
	return helix.Tool{}, false
}

var all = []struct {
	name string
	tool func() helix.Tool
}{
	{"time", Time}, {"calculator", Calculator}, {"wait", Wait}, {"remember", Remember}, {"recall", Recall}, {"forget", Forget},
}

type when struct {
	Zone string `json:"zone,omitempty" jsonschema:"time zone such as Europe/Paris; the server's own without it"`
}

// Time returns a tool that tells the date and time.
func Time() helix.Tool {
	return helix.Tool{
		Name: "time", Description: "Tell the date and time.", ReadOnly: true,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in when) (string, error) {
			now := time.Now()
			if in.Zone != "" {
				zone, err := time.LoadLocation(in.Zone)
				if err != nil {
					return "", helix.ErrInvalid.WithMessage("there is no time zone %q", in.Zone)
				}
				now = now.In(zone)
			}
			return now.Format("Monday, 2 January 2006, 15:04:05 MST"), nil
		}),
	}
}

type sum struct {
	Expression string `json:"expression" jsonschema:"such as 2 * (3 + 4)"`
}

// Calculator returns a tool that evaluates arithmetic expressions.
func Calculator() helix.Tool {
	return helix.Tool{
		Name: "calculator", Description: "Calculate an arithmetic expression of + - * / % ^ and parentheses.", ReadOnly: true,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in sum) (float64, error) {
			return evaluate(in.Expression)
		}),
	}
}
