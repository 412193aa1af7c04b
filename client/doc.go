// Package client speaks to an agent server over HTTP.
//
//	c, err := client.New(client.Config{URL: "https://agents.example.com", Token: token})
//	run, err := c.Start(ctx, wire.Start{AgentType: "support", Message: wire.Text("Where is my order?")})
//	for item, err := range c.Read(ctx, run.SessionID, run.StartSequence) {
//		// chunks as they come, each exactly once, and a terminal item at the end
//	}
//
// What is sent and answered are the types of package [wire]; messages, sessions and
// stream items are those of packages session and stream, as in a program that runs
// the agents itself.
//
// # Errors
//
// A server's refusal, and a server that cannot be reached, is a [*session.Error] with
// the server's code, so [errors.Is] works with the sentinels of package session as it
// does in the server's own process. Retryable says that the same request may succeed
// later; nobody knows then whether it was carried out, so repeat requests that change
// something with a request id. [RetryAfter] is how long the server asks to be left
// alone. A call whose context ends returns that context's error.
//
// The token is sent to the configured server and nowhere else: redirections are not
// followed, and it is in no error and no line of the log.
package client
