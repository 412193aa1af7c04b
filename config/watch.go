package config

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"time"
)

// Watch tells of changes to a file until ctx ends: after each, changed is called
// with the file, or with why it cannot be used. It looks at every interval, so it
// also sees changes that come by way of a link or a mount, and reads the file only
// when its size or time has changed. The content at the beginning is taken as known
// when it is that of current, the file in use, which may be nil.
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

// watcher knows what a file was when it last looked.
type watcher struct {
	path  string
	size  int64
	time  time.Time
	known [sha256.Size]byte
	lost  bool // it could not be read, which was told
}

// news is a file that has changed, or why it cannot be used.
type news struct {
	file *File
	err  error
}

// look gives what is new, or nil.
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

// granularity is how coarse a file system's times may be: within it, a second
// change leaves no trace but in the content.
const granularity = 2 * time.Second

func recent(info fs.FileInfo) bool { return time.Since(info.ModTime()) < granularity }
