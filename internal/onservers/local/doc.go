// Package local plays the scenarios of the local runtime on servers.
package local
