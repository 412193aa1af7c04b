// Package webtest holds the server to the clients that people use: useChat of
// Vercel's AI SDK, in the versions that are about, and a page in a browser with
// the server's own helper. The server is a process of its own, which the tests
// kill and start again.
package webtest
