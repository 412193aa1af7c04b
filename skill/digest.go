package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// FileSum is a file of a skill, SKILL.md included, as the skill's digest counts it.
type FileSum struct {
	// Path is relative to the skill's directory, with slashes.
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Executable bool   `json:"executable,omitempty"`
	// SHA256 is the hash of the content, in hexadecimal.
	SHA256 string `json:"sha256"`
}

// Sum returns the sum of a file with the given content.
func Sum(path string, executable bool, content []byte) FileSum {
	sum := sha256.Sum256(content)
	return FileSum{Path: path, Size: int64(len(content)), Executable: executable, SHA256: hex.EncodeToString(sum[:])}
}

// SumFile returns the sum of an open file. It reads no more than limit bytes.
func SumFile(path string, f fs.File, limit int64) (FileSum, error) {
	info, err := f.Stat()
	if err != nil {
		return FileSum{}, err
	}
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(f, limit))
	if err != nil {
		return FileSum{}, err
	}
	return FileSum{Path: path, Size: n, Executable: info.Mode()&0o111 != 0, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}

// Digest returns the digest of a skill: the SHA-256 of one line "mode sha256 path" for each
// file, sorted, where mode is 100755 for an executable file and 100644 for others. It begins
// with "sha256:".
func Digest(files []FileSum) string {
	lines := make([]string, len(files))
	for i, f := range files {
		mode := "100644"
		if f.Executable {
			mode = "100755"
		}
		lines[i] = mode + " " + f.SHA256 + " " + f.Path + "\n"
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return "sha256:" + hex.EncodeToString(sum[:])
}
