package testserver

import (
	"fmt"
	"strings"
)

// checkSettings makes sure that settings have the form name=value.
func checkSettings(settings []string) error {
	for _, s := range settings {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			return fmt.Errorf("setting %q: want name=value", s)
		}
	}
	return nil
}
