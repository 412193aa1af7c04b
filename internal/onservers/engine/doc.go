// Package engine interrupts turns at every point on servers.
package engine
