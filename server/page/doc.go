// Package page is a chat page for the agents of a server: a handler that serves it beside
// the server's API.
//
//	api, err := server.New(server.Config{Executor: rt, Backend: db, Agents: agents, AllowUnauthenticated: true})
//	…
//	err = http.ListenAndServe("127.0.0.1:4170", page.New(page.Config{API: api}))
//
// People talk to the agents, watch replies while they are written, stop and resume them,
// approve calls and answer questions. Replies are shown as markdown. A page that loses its
// connection picks the reply up where it was, also after a restart of the server. The page
// contains no data: it asks the API for everything, as whoever uses it. It loads nothing
// from elsewhere, and its content security policy forbids it to.
package page
