package session

// NotFound is the refusal of an operation on a session that does not exist.
func NotFound(id string) error { return ErrNotFound.WithMessage("session %s: not found", id) }

// Exists is the refusal of a new session in the place of one that exists.
func Exists(state *State) error {
	return ErrExists.WithMessage("session %s already exists", state.ID).WithSaw(state.Saw())
}
