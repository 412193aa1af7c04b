package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// account is the user that a server runs as.
type account struct{ uid, gid uint32 }

// unprivileged returns the user to run a server as that refuses to run as root, or nil if this process's own user will do.
func unprivileged() (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &account{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("it does not run as root, and there is neither a user postgres nor a user nobody")
}
