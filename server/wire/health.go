package wire

// Health answers GET /healthz and GET /readyz.
type Health struct {
	// Status is "ok" or "ready".
	Status string `json:"status"`
}
