// Quickstart: an agent with one tool, and the page to talk to it.
package main

import (
	"context"
	"log"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/page"
	"github.com/helixagents/helix/store/sqlite"
)

type article struct {
	Note string `json:"note" jsonschema:"the article and the quantity"`
}

var order = helix.Tool{
	Name: "order", Description: "Place an order.", Approval: helix.RequireApproval,
	Execute: helix.Func(func(_ context.Context, _ *helix.Call, in article) (string, error) {
		return "ordered: " + in.Note, nil
	}),
}

// model plays a script and needs no key. A real one is
// anthropic.New(anthropic.Config{Model: "claude-sonnet-4-5"}).
var model = scripted.Demo(scripted.DemoConfig{})

func main() {
	shop := &helix.Agent{Name: "shop", Description: `Say "Order ten pencils."`, Model: model, Tools: []helix.Tool{order}}
	db, err := sqlite.Open("quickstart.db")
	check(err)
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{shop}})
	check(err)
	api, err := server.New(server.Config{Executor: rt, Backend: db, Agents: server.Agents(shop), AllowUnauthenticated: true})
	check(err)
	log.Print("open http://127.0.0.1:4170")
	check(server.HTTPServer("127.0.0.1:4170", page.New(page.Config{API: api})).ListenAndServe())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
