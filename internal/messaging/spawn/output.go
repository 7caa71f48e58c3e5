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
	"github.com/doorward/doorward/internal/trust/visible"
)

const (
	// resultBytes of what an agent said last are its result.
	resultBytes = 64 << 10
	// outputsKept is how long a whole output lies in the state directory.
	outputsKept = 7 * 24 * time.Hour
	outputsDir  = "spawns"
)

// output keeps what an agent writes to its standard output: the end of it in
// memory, and of one that is longer, all up to a bound in a file, which has its
// name once it was looked at. It is read to its end whatever happens, so that the
// agent never waits for us.
type output struct {
	dir, id string
	most    int64

	last  []byte // at most twice resultBytes
	file  *os.File
	sum   hash.Hash
	size  int64 // in the file
	total int64
	lost  bool // there can be no file
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

// open makes the file once there is more than a result, and begins it with
// what there was.
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

// The endings of a whole output: before anybody has looked at it, and then.
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
		o.most = o.size // the disk is full: what is there is there
	}
}

// end returns the result, and all of the output where that is more; else nil.
func (o *output) end() (text string, whole io.Reader) {
	text = string(o.last[max(0, len(o.last)-resultBytes):])
	if o.file == nil {
		return text, nil
	}
	return text, io.NewSectionReader(o.file, 0, o.size)
}

// settle keeps the whole output and tells where, or removes it.
func (o *output) settle(keep bool) *mail.Ref {
	if o.file == nil {
		return nil
	}
	o.file.Close()
	if !keep || os.Rename(o.path(unseen), o.path(seen)) != nil {
		_ = os.Remove(o.path(unseen)) // or the next start does
		return nil
	}
	uri := url.URL{Scheme: "file", Path: o.path(seen)}
	return &mail.Ref{URI: uri.String(), SHA256: hex.EncodeToString(o.sum.Sum(nil)), Size: o.size}
}

// sweepOutputs removes stored outputs that are old or were never searched. It
// runs before anything is started.
func sweepOutputs(state string) {
	dir := filepath.Join(state, outputsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // none was ever kept
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err == nil && fi.Mode().IsRegular() && (time.Since(fi.ModTime()) > outputsKept || strings.HasSuffix(e.Name(), unseen)) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// plainText is s as UTF-8 without what is not printable, line ends and tabs
// aside.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r != '\n' && r != '\t' && !visible.Printable(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

// cutText keeps so many bytes of the end of a text, and begins it with a whole
// character.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[len(s)-most:]
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
