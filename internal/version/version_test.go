package version

import (
	"runtime/debug"
	"testing"
)

func TestFindVersion(t *testing.T) {
	t.Parallel()
	helix := debug.Module{Path: module, Version: "v0.1.0"}
	replaced := helix
	replaced.Replace = &debug.Module{Path: "../helix"}
	other := debug.Module{Path: "example.com/app", Version: "v9.9.9"}
	for _, c := range []struct {
		what string
		info debug.BuildInfo
		want string
	}{
		{"the program of the module", debug.BuildInfo{Main: helix}, "v0.1.0"},
		{"one without a version", debug.BuildInfo{Main: debug.Module{Path: module}}, devel},
		{"a program that uses the module", debug.BuildInfo{Main: other, Deps: []*debug.Module{{Path: "example.com/x", Version: "v1.0.0"}, &helix}}, "v0.1.0"},
		{"a program that replaces it", debug.BuildInfo{Main: other, Deps: []*debug.Module{&replaced}}, devel},
		{"a program without it", debug.BuildInfo{Main: other}, devel},
	} {
		if got := findVersion(&c.info); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	if Helix() == "" {
		t.Error("this program has no version")
	}
}
