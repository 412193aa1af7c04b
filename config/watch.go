package config

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"time"
)

// Watch calls changed after each change of a file until ctx ends, with the new file or with
// the error that makes it invalid. It polls at the interval, so it also notices changes
// through a link or a mount, and reads the file only if its size or time has changed.
// current is the file in use, or nil; Watch does not report content that equals it.
func Watch(ctx context.Context, path string, interval time.Duration, current *File, changed func(*File, error)) {
	w := watcher{path: path}
	if current != nil {
		w.known = current.source.sum
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if news := w.look(); news != nil && ctx.Err() == nil {
			changed(news.file, news.err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// watcher remembers the last state of a file.
type watcher struct {
	path  string
	size  int64
	time  time.Time
	known [sha256.Size]byte
	lost  bool // it could not be read, which was reported
}

// news is a changed file, or the error that makes it invalid.
type news struct {
	file *File
	err  error
}

// look returns a change, or nil.
func (w *watcher) look() *news {
	info, err := os.Stat(w.path)
	if err == nil && !w.lost && info.Size() == w.size && info.ModTime().Equal(w.time) && !recent(info) {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = read(w.path)
	}
	if err != nil {
		if w.lost {
			return nil
		}
		w.lost = true
		return &news{err: err}
	}
	w.size, w.time = info.Size(), info.ModTime()
	sum := sha256.Sum256(data)
	if sum == w.known && !w.lost {
		return nil
	}
	w.known, w.lost = sum, false
	file, err := Parse(w.path, data)
	return &news{file, err}
}

// granularity is how coarse a file system's times may be: a second change within it is
// visible only in the content.
const granularity = 2 * time.Second

func recent(info fs.FileInfo) bool { return time.Since(info.ModTime()) < granularity }
