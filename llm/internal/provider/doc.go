// Package provider holds what the adapters of model providers share: how a failure
// is classified, how the pieces of a reply become deltas and parts, and how a
// transcript that other providers may have written is made fit to be sent.
package provider
