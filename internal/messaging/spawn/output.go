package spawn

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/messaging/mail"
)

const (
	// resultBytes is the size of a result: the end of an agent's output.
	resultBytes = 64 << 10
	// outputsKept is how long a whole output is kept in the state directory after the end of
	// its agent.
	outputsKept = 7 * 24 * time.Hour
	// sweepEvery is the time between two removals of old outputs.
	sweepEvery = 24 * time.Hour
	outputsDir = "spawns"
)

// output keeps what an agent writes to its standard output: the end of it in memory and,
// if it is longer than a result, all of it up to a bound in a file. The file gets its
// final name after it was searched (settle). The output is always read to its end, so
// that the agent never waits for the daemon.
type output struct {
	dir, id string
	most    int64

	last  []byte // at most twice resultBytes
	file  *os.File
	sum   hash.Hash
	size  int64 // in the file
	total int64
	lost  bool // no file could be made
}

func newOutput(state, id string, most int64) *output {
	return &output{dir: filepath.Join(state, outputsDir), id: id, most: most, sum: sha256.New()}
}

func (o *output) take(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		o.add(buf[:n])
		if err != nil {
			return
		}
	}
}

func (o *output) add(b []byte) {
	o.total += int64(len(b))
	if o.total > resultBytes && o.file == nil && !o.lost {
		o.open()
	}
	if o.last = append(o.last, b...); len(o.last) > 2*resultBytes {
		o.last = append(o.last[:0], o.last[len(o.last)-resultBytes:]...)
	}
	o.store(b)
}

// open creates the file when the output exceeds a result, and writes the output so far to
// it.
func (o *output) open() {
	err := os.MkdirAll(o.dir, 0o700)
	if err == nil {
		o.file, err = os.OpenFile(o.path(unseen), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		o.lost = true
		return
	}
	o.store(o.last)
}

// The suffixes of a whole output: before it was searched, and after.
const (
	unseen = ".part"
	seen   = ".out"
)

func (o *output) path(ending string) string { return filepath.Join(o.dir, o.id+ending) }

func (o *output) store(b []byte) {
	if o.file == nil {
		return
	}
	if room := o.most - o.size; int64(len(b)) > room {
		b = b[:room]
	}
	n, err := o.file.Write(b)
	o.sum.Write(b[:n])
	o.size += int64(n)
	if err != nil {
		o.most = o.size // the disk is full: the file keeps what it has
	}
}

// end returns the end of the output, from a whole character on, and, if there is a file,
// the whole output; otherwise nil.
func (o *output) end() (text string, whole io.Reader) {
	text = string(o.last[max(0, len(o.last)-resultBytes):])
	if o.total > int64(len(text)) {
		text = wholeRunes(text)
	}
	if o.file == nil {
		return text, nil
	}
	return text, io.NewSectionReader(o.file, 0, o.size)
}

// settle keeps the whole output and returns a link to it, or removes it and returns nil.
func (o *output) settle(keep bool) *mail.Ref {
	if o.file == nil {
		return nil
	}
	o.file.Close()
	now := time.Now() // an output is as old as its end, not as its last byte
	_ = os.Chtimes(o.path(unseen), now, now)
	if !keep || os.Rename(o.path(unseen), o.path(seen)) != nil {
		_ = os.Remove(o.path(unseen)) // otherwise the next start removes it
		return nil
	}
	uri := url.URL{Scheme: "file", Path: o.path(seen)}
	return &mail.Ref{URI: uri.String(), SHA256: hex.EncodeToString(o.sum.Sum(nil)), Size: o.size}
}

// sweepOutputs removes stored outputs that are old. atStart: nothing was started yet, and it
// also removes those that were never searched.
func sweepOutputs(state string, atStart bool) {
	dir := filepath.Join(state, outputsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // no output was kept yet
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		old := time.Since(fi.ModTime()) > outputsKept
		if strings.HasSuffix(e.Name(), unseen) {
			old = atStart // it belongs to a running agent, or to an earlier run
		}
		if old {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// cutText returns at most the last most bytes of s, beginning at a whole character.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return wholeRunes(s[len(s)-most:])
}

// wholeRunes returns s without the rest of a character at its beginning.
func wholeRunes(s string) string {
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
