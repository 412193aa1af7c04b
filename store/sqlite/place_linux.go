package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// networkTypes names the file systems that may be on another machine, by their
// type in statfs.
var networkTypes = map[uint32]string{
	0x00006969: "nfs",
	0x0000517b: "smb",
	0xff534d42: "cifs",
	0xfe534d42: "smb2",
	0x01021997: "9p",
	0x73757245: "coda",
	0x5346414f: "afs",
	0x6b414653: "afs",
	0x00c36400: "ceph",
	0x0bd00bd0: "lustre",
	0x01161970: "gfs2",
	0x7461636f: "ocfs2",
	0x0000564c: "ncp",
	typeFUSE:   "fuse",
}

// typeFUSE is the type of file systems that programs provide; the list of mounts
// has their actual kind.
const typeFUSE = 0x65735546

// networkDisk returns the name of a path's file system if it may be on another
// machine.
func networkDisk(path string) string {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return ""
	}
	kind := uint32(stat.Type) //nolint:gosec // the numbers have 32 bits
	name := networkTypes[kind]
	if kind != typeFUSE {
		return name
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return name
	}
	if path, err = filepath.Abs(path); err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return name
	}
	switch mounted := mountedAt(string(mounts), path); mounted {
	case "fuseblk": // a local disk
		return ""
	case "":
		return name
	default:
		return mounted
	}
}

// mountedAt returns the type of a path's file system according to the list of
// mounts.
func mountedAt(mounts, path string) (kind string) {
	longest := -1
	for line := range strings.Lines(mounts) {
		// 36 35 98:0 /root /mount/point options - type source options
		fields := strings.Fields(line)
		after := -1
		for i, field := range fields {
			if field == "-" {
				after = i + 1
				break
			}
		}
		if len(fields) < 5 || after < 0 || after >= len(fields) {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		within := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if within && len(point) >= longest { // of two at the same mount point the later one is visible
			longest, kind = len(point), fields[after]
		}
	}
	return kind
}
