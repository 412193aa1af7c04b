package session

import "maps"

// PatchedMetadata is the session's metadata with a patch applied, in a map of its
// own; nil if none is left. A patch that adds entries is held to what [State.Check]
// says of the result, so that no number of patches makes more metadata than a
// document may have. Stores share it so that they agree on every case.
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
	if len(out) > max(len(s.Metadata), MaxMetadata) { // one that has more already may still be changed
		return nil, Invalid("metadata", "has %d entries, at most %d are allowed", len(out), MaxMetadata)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}
