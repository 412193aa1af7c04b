package session

import "maps"

// PatchedMetadata returns the session's metadata with a patch applied, in a new
// map, or nil if no entry remains. If a patch adds entries, the result must
// satisfy [State.Check], so that no series of patches exceeds the limits of a
// document. Stores share this function so that they agree on every case.
func (s *State) PatchedMetadata(patch map[string]*string) (map[string]string, error) {
	out := make(map[string]string, len(s.Metadata)+len(patch))
	maps.Copy(out, s.Metadata)
	for name, value := range patch {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = *value
		}
	}
	if err := CheckMetadata(patch); err != nil {
		return nil, err
	}
	if len(out) > max(len(s.Metadata), MaxMetadata) { // a document above the limit may still be changed
		return nil, Invalid("metadata", "has %d entries, at most %d are allowed", len(out), MaxMetadata)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}
