//go:build !(darwin || linux)

package bake

import "errors"

// exchange is not possible here.
func exchange(string, string) error { return errors.ErrUnsupported }
