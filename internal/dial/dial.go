// Package dial makes network connections that find out when their other end vanishes.
package dial

import (
	"net"
	"time"
)

// New returns a dialer for long-lived connections, of which some wait without sending anything.
// If nothing arrives from the other end's host any more, they end within half a minute.
func New(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
}
