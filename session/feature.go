package session

import "slices"

// The abilities that a run may require.
const (
	// FeatureQuestion is the ability to handle calls that ask people questions.
	FeatureQuestion = "question"
	// FeatureContext is the ability to keep a conversation within bounds, and to send the
	// model what is left of it.
	FeatureContext = "context"
)

// Features lists the names of all abilities of this program that a run may require.
func Features() []string { return []string{FeatureQuestion, FeatureContext} }

// maxFeatures bounds how many abilities a run may require, and maxFeature the length
// of a name.
const (
	maxFeatures = 32
	maxFeature  = 64
)

// checkFeatures returns an error if the names of abilities cannot be stored.
func checkFeatures(names []string) error {
	if len(names) > maxFeatures {
		return Invalid("requires", "has %d names, at most %d are allowed", len(names), maxFeatures)
	}
	for _, name := range names {
		ok := name != "" && len(name) <= maxFeature
		for _, r := range name {
			ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
		}
		if !ok {
			return Invalid("requires", "has the name %.100q; a name has 1 to %d of the characters a-z, 0-9, '_', '-' and '.'", name, maxFeature)
		}
	}
	return nil
}

// CheckFeatures returns [ErrNotSupported], which may be retried elsewhere, if the run
// of a session requires an ability that is not among those given.
func CheckFeatures(sessionID string, requires, has []string) error {
	for _, name := range requires {
		if !slices.Contains(has, name) {
			err := ErrNotSupported.WithMessage("session %s: its run requires %q, which this process does not support", sessionID, name)
			err.Retryable = true
			return err
		}
	}
	return nil
}
