//go:build unix

package durable_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/durable"
)

// tree is a directory with the files a/b/c/f and else/where/f.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree {
	t.Helper()
	tr := tree{t, t.TempDir()}
	tr.do(os.MkdirAll(tr.at("a/b/c"), 0o700), os.MkdirAll(tr.at("else/where"), 0o700),
		os.WriteFile(tr.at("a/b/c/f"), []byte("true"), 0o600), os.WriteFile(tr.at("else/where/f"), []byte("linked"), 0o600))
	return tr
}

func (tr tree) at(name string) string { return filepath.Join(tr.root, name) }

func (tr tree) do(errs ...error) {
	tr.t.Helper()
	if err := errors.Join(errs...); err != nil {
		tr.t.Fatal(err)
	}
}

// plant writes a file with other content, and makes its directories.
func (tr tree) plant(name string) {
	tr.t.Helper()
	tr.do(os.MkdirAll(filepath.Dir(tr.at(name)), 0o700), os.WriteFile(tr.at(name), []byte("planted"), 0o600))
}

func read(p *durable.Pinned) (string, error) {
	f, err := p.Open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// A pinned file is not read after any directory above it was moved, removed or
// replaced.
func TestAPinnedFileIsNotReadThroughAnotherDirectory(t *testing.T) {
	t.Parallel()
	for _, above := range []string{"a", "a/b", "a/b/c"} {
		rest := strings.TrimPrefix("a/b/c/f", above)
		for how, move := range map[string]func(tr tree){
			"moved away, planted": func(tr tree) {
				tr.do(os.Rename(tr.at(above), tr.at("away")))
				tr.plant("a/b/c/f")
			},
			"moved away, a link in its place": func(tr tree) {
				tr.do(os.Rename(tr.at(above), tr.at("away")))
				tr.plant("mine" + rest)
				tr.do(os.Symlink(tr.at("mine"), tr.at(above)))
			},
			"moved away, a link back to it": func(tr tree) {
				tr.plant("mine" + rest)
				tr.do(os.Rename(tr.at(above), tr.at("mine/true")), os.Symlink("mine", tr.at("link")), os.Symlink(tr.at("link"), tr.at(above)))
			},
			"removed, planted": func(tr tree) {
				tr.do(os.RemoveAll(tr.at(above)))
				tr.plant("a/b/c/f")
			},
			"exchanged with another of its names": func(tr tree) {
				tr.plant("else" + rest)
				tr.do(os.Rename(tr.at(above), tr.at("tmp")), os.Rename(tr.at("else"), tr.at(above)), os.Rename(tr.at("tmp"), tr.at("else")))
			},
			"gone": func(tr tree) { tr.do(os.Rename(tr.at(above), tr.at("away"))) },
		} {
			for _, link := range []bool{false, true} {
				tr := newTree(t)
				path := tr.at("a/b/c/f")
				if link {
					tr.do(os.Symlink("a", tr.at("way")))
					path = tr.at("way/b/c/f")
				}
				p, err := durable.Pin(path)
				tr.do(err)
				if got, err := read(p); got != "true" || err != nil {
					t.Fatalf("%s: %q, %v", above, got, err)
				}
				move(tr)
				if got, err := read(p); !errors.Is(err, durable.ErrMoved) || got != "" || p.Check() == nil {
					t.Errorf("%s %s, by a link: %v: %q, %v", above, how, link, got, err)
				}
				p.Close()
			}
		}
	}
}

// A pinned file is not read when a link in its path, or its name, leads to
// another place than when it was pinned.
func TestAPinnedFileIsNotReadThroughAnotherLink(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ prepare, move func(tr tree) }{
		"a link above": {
			func(tr tree) { tr.do(os.Symlink("a", tr.at("way"))) },
			func(tr tree) {
				tr.plant("x/b/c/f")
				tr.do(os.Remove(tr.at("way")), os.Symlink("x", tr.at("way")))
			}},
		"the name becomes a link": {
			func(tr tree) { tr.do(os.Mkdir(tr.at("way"), 0o700), os.Rename(tr.at("a/b"), tr.at("way/b"))) },
			func(tr tree) {
				tr.plant("x/f")
				tr.do(os.Remove(tr.at("way/b/c/f")), os.Symlink(tr.at("x/f"), tr.at("way/b/c/f")))
			}},
		"the name is a link and gets another end": {
			func(tr tree) {
				tr.do(os.MkdirAll(tr.at("way/b/c"), 0o700), os.Symlink("../../../else/where/f", tr.at("way/b/c/f")))
			},
			func(tr tree) {
				tr.plant("x/f")
				tr.do(os.Remove(tr.at("way/b/c/f")), os.Symlink("../../../x/f", tr.at("way/b/c/f")))
			}},
		"the end of a link is moved": {
			func(tr tree) {
				tr.do(os.MkdirAll(tr.at("way/b/c"), 0o700), os.Symlink(tr.at("else/where/f"), tr.at("way/b/c/f")))
			},
			func(tr tree) {
				tr.do(os.Rename(tr.at("else"), tr.at("away")))
				tr.plant("else/where/f")
			}},
	} {
		tr := newTree(t)
		c.prepare(tr)
		p, err := durable.Pin(tr.at("way/b/c/f"))
		tr.do(err)
		defer p.Close()
		if got, err := read(p); err != nil || got == "" {
			t.Fatalf("%s: %q, %v", what, got, err)
		}
		c.move(tr)
		if got, err := read(p); !errors.Is(err, durable.ErrMoved) || got != "" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

// A pinned file gives its new content after a change as editors, secret mounts
// and certificate renewals make it.
func TestAPinnedFileMayBeReplaced(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ prepare, change func(tr tree) }{
		"written in place": {nil, func(tr tree) { tr.do(os.WriteFile(tr.at("a/b/c/f"), []byte("new"), 0o600)) }},
		"renamed over": {nil, func(tr tree) {
			tr.do(os.WriteFile(tr.at("a/b/c/f~"), []byte("new"), 0o600), os.Rename(tr.at("a/b/c/f~"), tr.at("a/b/c/f")))
		}},
		"removed and made": {nil, func(tr tree) {
			tr.do(os.Remove(tr.at("a/b/c/f")), os.WriteFile(tr.at("a/b/c/f"), []byte("new"), 0o600))
		}},
		"a link within the directory, as a secret is mounted": {
			func(tr tree) {
				tr.do(os.MkdirAll(tr.at("a/b/c/..1"), 0o700), os.Rename(tr.at("a/b/c/f"), tr.at("a/b/c/..1/f")),
					os.Symlink("..1", tr.at("a/b/c/..data")), os.Symlink("..data/f", tr.at("a/b/c/f")))
			},
			func(tr tree) {
				tr.do(os.MkdirAll(tr.at("a/b/c/..2"), 0o700), os.WriteFile(tr.at("a/b/c/..2/f"), []byte("new"), 0o600),
					os.Symlink("..2", tr.at("a/b/c/tmp")), os.Rename(tr.at("a/b/c/tmp"), tr.at("a/b/c/..data")))
			}},
		"a link to the next file of the same directory, as a certificate is renewed": {
			func(tr tree) {
				tr.do(os.Remove(tr.at("a/b/c/f")), os.Symlink("../../../else/where/f", tr.at("a/b/c/f")))
			},
			func(tr tree) {
				tr.do(os.WriteFile(tr.at("else/where/f2"), []byte("new"), 0o600), os.Symlink("../../../else/where/f2", tr.at("a/b/c/tmp")),
					os.Rename(tr.at("a/b/c/tmp"), tr.at("a/b/c/f")))
			}},
		"a link becomes a file": {
			func(tr tree) {
				tr.do(os.Remove(tr.at("a/b/c/f")), os.Symlink(tr.at("else/where/f"), tr.at("a/b/c/f")))
			},
			func(tr tree) {
				tr.do(os.Remove(tr.at("a/b/c/f")), os.WriteFile(tr.at("a/b/c/f"), []byte("new"), 0o600))
			}},
	} {
		tr := newTree(t)
		if c.prepare != nil {
			c.prepare(tr)
		}
		p, err := durable.Pin(tr.at("a/b/c/f"))
		tr.do(err)
		defer p.Close()
		c.change(tr)
		if got, err := read(p); err != nil || got != "new" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

func TestAPathThatOthersCanExchangeIsExposed(t *testing.T) {
	t.Parallel()
	for mode, exposed := range map[os.FileMode]bool{0o700: false, 0o755: false, 0o775: false, 0o777: true, 0o777 | os.ModeSticky: false, 0o702: true} {
		tr := newTree(t)
		tr.do(os.Chmod(tr.at("a/b"), mode))
		p, err := durable.Pin(tr.at("a/b/c/f"))
		tr.do(err)
		if err := p.Exposed(); (err != nil) != exposed {
			t.Errorf("%v: %v", mode, err)
		}
		p.Close()
	}
	if os.Geteuid() == 0 {
		tr := newTree(t)
		tr.do(os.Chown(tr.at("a/b"), 12345, -1))
		p, err := durable.Pin(tr.at("a/b/c/f"))
		tr.do(err)
		defer p.Close()
		if p.Exposed() == nil {
			t.Error("another user's directory is taken")
		}
	}
}
