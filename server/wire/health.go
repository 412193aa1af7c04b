package wire

// Health answers GET /healthz and GET /readyz.
type Health struct {
	// Status is "ok" or "ready".
	Status string `json:"status"`
	// Service is the server's name, if it has one.
	Service string `json:"service,omitempty"`
	// Version is the version of Helix that the server was built with.
	Version string `json:"version"`
}
