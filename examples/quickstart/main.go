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

type order struct {
	Note string `json:"note" jsonschema:"the article and the quantity"`
}

var shop = &helix.Agent{
	Name:         "shop",
	Description:  `Takes orders, and asks you before it places one. Say "Order ten pencils."`,
	Instructions: "You work in a shop for pencils.",
	Model:        scripted.Demo(scripted.DemoConfig{}), // plays a script; for a real model: anthropic.New(anthropic.Config{Model: "claude-sonnet-4-5"})
	Tools: []helix.Tool{{
		Name: "order", Description: "Place an order.", Approval: helix.RequireApproval,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in order) (string, error) {
			return "ordered: " + in.Note, nil
		}),
	}},
}

func main() {
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
