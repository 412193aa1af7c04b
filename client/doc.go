// Package client is a client of an agent server over HTTP.
//
//	c, err := client.New(client.Config{URL: "https://agents.example.com", Token: token})
//	run, err := c.Start(ctx, wire.Start{AgentType: "support", Message: wire.Text("Where is my order?")})
//	for item, err := range c.Read(ctx, run.SessionID, run.StartSequence) {
//		// chunks as they are written, each exactly once, and a terminal item at the end
//	}
//
// Requests and responses are the types of package [wire]. Messages, sessions and stream
// items are the types of packages session and stream, as in a program that runs the
// agents itself.
//
// # Errors
//
// If the server refuses a request or cannot be reached, the error is a [*session.Error]
// with the server's code, so [errors.Is] works with the sentinels of package session as
// it does in the server's own process. Retryable means that the same request may succeed
// later. Whether it had an effect is then unknown, so give requests that change something
// a request id. [RetryAfter] returns how long the server asks you to wait. A call whose
// context ends returns that context's error.
//
// The token is sent only to the configured server: the client follows no redirections,
// and the token is in no error and no line of the log.
package client
