package bake

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// object is what a name of git stands for. The kind is empty if there is nothing.
type object struct {
	id   string
	kind string // blob, tree, commit or tag
	size int64
}

// lookUp returns the objects of names such as "<commit>:skills". The names were checked: they
// have no line ends.
func (r *repository) lookUp(ctx context.Context, names ...string) ([]object, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out, err := r.run(ctx, []byte(strings.Join(names, "\n")+"\n"), "cat-file", "--batch-check")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(names) {
		return nil, fmt.Errorf("git cat-file answered %d of %d questions", len(lines), len(names))
	}
	objects := make([]object, len(names))
	for i, line := range lines {
		objects[i], _ = parseObject(line) // anything else, such as "missing", is no object
	}
	return objects, nil
}

// parseObject parses "id kind size".
func parseObject(line string) (object, bool) {
	f := strings.Fields(line)
	if len(f) != 3 || !shaName.MatchString(f[0]) {
		return object{}, false
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || size < 0 {
		return object{}, false
	}
	return object{f[0], f[1], size}, true
}

// Modes of entries of a tree.
const (
	modeExecutable = "100755"
	modeLink       = "120000"
	modeSubmodule  = "160000"
	modeTree       = "040000"
)

// treeEntry is an entry of a tree.
type treeEntry struct {
	object
	mode string
	path string
}

// maxListed is how many entries a tree may have.
const maxListed = 100_000

// list returns the entries of a tree: those of the directory itself, or all files below
// it.
func (r *repository) list(ctx context.Context, tree string, below bool) ([]treeEntry, error) {
	args := []string{"ls-tree", "-l", "-z", "--full-tree"}
	if below {
		args = append(args, "-r")
	}
	out, err := r.run(ctx, nil, append(args, tree)...)
	if err != nil {
		return nil, err
	}
	var entries []treeEntry
	for line := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		if len(line) == 0 {
			continue
		}
		if len(entries) == maxListed {
			return nil, fmt.Errorf("a directory of %s has more than %d files", r.remote.url, maxListed)
		}
		head, path, ok := strings.Cut(string(line), "\t")
		f := strings.Fields(head)
		if !ok || len(f) != 4 || !shaName.MatchString(f[2]) {
			return nil, fmt.Errorf("git ls-tree printed %s", quote(string(line)))
		}
		size, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil { // "-" for what is no file
			size = 0
		}
		entries = append(entries, treeEntry{object{f[2], f[1], size}, f[0], path})
	}
	return entries, nil
}

// read calls take with the content of each blob, in order. Their sizes, which were checked,
// bound what is read.
func (r *repository) read(ctx context.Context, blobs []treeEntry, take func(i int, content []byte) error) (err error) {
	if len(blobs) == 0 {
		return nil
	}
	var ids strings.Builder
	for _, b := range blobs {
		ids.WriteString(b.id + "\n")
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := r.command(ctx, "cat-file", "--batch")
	complaints := &limited{limit: 16 << 10, cut: true}
	cmd.Stdin, cmd.Stderr = strings.NewReader(ids.String()), complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return err
	}
	if err := r.start(cmd); err != nil {
		cancel()
		return r.failure(ctx, err, "cat-file", nil)
	}
	err = readBlobs(bufio.NewReader(out), blobs, take)
	if err != nil {
		failed := ctx.Err() == nil
		cancel() // it may still be writing
		_ = cmd.Wait()
		if failed {
			return err
		}
		return r.failure(ctx, err, "cat-file", complaints.data)
	}
	err = r.failure(ctx, cmd.Wait(), "cat-file", complaints.data)
	cancel()
	return err
}

func readBlobs(in *bufio.Reader, blobs []treeEntry, take func(i int, content []byte) error) error {
	for i, want := range blobs {
		line, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("git cat-file ended early: %w", err)
		}
		got, ok := parseObject(line)
		if !ok || got.kind != "blob" || got.id != want.id || got.size != want.size {
			return fmt.Errorf("git cat-file answered %s for %s", quote(line), want.id)
		}
		content := make([]byte, got.size)
		if _, err := io.ReadFull(in, content); err != nil {
			return fmt.Errorf("git cat-file ended early: %w", err)
		}
		if end, err := in.ReadByte(); err != nil || end != '\n' {
			return errors.New("git cat-file did not end a file with a line end")
		}
		if err := take(i, content); err != nil {
			return err
		}
	}
	return nil
}
