package durable_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/durable"
)

const (
	old   = "what was there before"
	fresh = "what is there now"
)

// place is a directory that holds the file "name", and a file bait beside the
// directory that must not change.
type place struct {
	*os.Root
	t         *testing.T
	dir, bait string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	bait := filepath.Join(filepath.Dir(dir), "bait")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(bait, []byte("bait"), 0o644),
		os.WriteFile(filepath.Join(dir, "name"), []byte(old), 0o600)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &place{Root: root, t: t, dir: dir, bait: bait}
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// holds fails unless name is a regular file of mode 0600 with that content.
func (p *place) holds(name, content string) {
	p.t.Helper()
	fi, err := os.Lstat(p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	b, err := os.ReadFile(p.path(name))
	if err != nil || string(b) != content || fi.Mode() != 0o600 {
		p.t.Errorf("%s is %q, %v, %v", name, b, fi.Mode(), err)
	}
}

// only fails unless the directory has exactly these names and the bait is
// unchanged.
func (p *place) only(names ...string) {
	p.t.Helper()
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if !slices.Equal(have, names) {
		p.t.Errorf("there are %v, want %v", have, names)
	}
	fi, err := os.Stat(p.bait)
	if err != nil {
		p.t.Fatal(err)
	}
	if b, err := os.ReadFile(p.bait); err != nil || string(b) != "bait" || fi.Mode() != 0o644 {
		p.t.Errorf("the bait is %q, %v, %v", b, fi.Mode(), err)
	}
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func TestAFileIsReplacedWhole(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	held, err := os.Open(p.path("name"))
	p.must(err)
	defer held.Close()
	p.must(durable.Replace(p.Root, "draft", "name", []byte(fresh)))
	p.holds("name", fresh)
	p.must(durable.Replace(p.Root, "draft", "other", nil))
	p.holds("other", "")
	p.only("name", "other")
	b := make([]byte, 100)
	if n, _ := held.Read(b); string(b[:n]) != old {
		t.Errorf("a reader of the old file reads %q, want the old content", b[:n])
	}
}

// A file or link that was planted under the name or the draft's name neither
// receives nor redirects what is written: Write refuses it, Replace removes it.
func TestPlantedFilesAndLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for what, plant := range map[string]func(p *place, name string) error{
		"a link out":        func(p *place, name string) error { return os.Symlink(p.bait, p.path(name)) },
		"a link inside":     func(p *place, name string) error { return os.Symlink("elsewhere", p.path(name)) },
		"a link to nowhere": func(p *place, name string) error { return os.Symlink("/nowhere/at/all", p.path(name)) },
		"a hard link":       func(p *place, name string) error { return os.Link(p.bait, p.path(name)) },
		"a file for all":    func(p *place, name string) error { return os.WriteFile(p.path(name), []byte("x"), 0o666) },
		"a longer file":     func(p *place, name string) error { return os.WriteFile(p.path(name), make([]byte, 1<<16), 0o600) },
	} {
		for _, at := range []string{"draft", "name"} {
			t.Run(what+" at the "+at, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				p.must(durable.Forget(p.Root, at))
				p.must(plant(p, at))
				if err := durable.Write(p.Root, at, []byte(fresh)); !errors.Is(err, fs.ErrExist) {
					t.Errorf("written over: %v", err)
				}
				if _, err := os.Lstat(p.path(at)); err != nil {
					t.Errorf("what was refused is gone: %v", err)
				}
				p.must(durable.Replace(p.Root, "draft", "name", []byte(fresh)))
				p.holds("name", fresh)
				p.only("name")
			})
		}
	}
}

// A planted draft that another process holds open receives none of the content.
func TestAPlantedDraftThatIsHeldOpenGetsNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	spy, err := os.OpenFile(p.path("draft"), os.O_RDWR|os.O_CREATE, 0o666)
	p.must(err)
	defer spy.Close()
	p.must(durable.Replace(p.Root, "draft", "name", []byte(fresh)))
	if fi, err := spy.Stat(); err != nil || fi.Size() != 0 {
		t.Errorf("it has %d bytes, %v", fi.Size(), err)
	}
	p.holds("name", fresh)
}

// Eight goroutines that replace one file at once leave one whole text and no
// draft, because ReplaceAt gives each call a draft of its own.
func TestManyAtOnceReplaceOneFile(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var wg sync.WaitGroup
	for i := range 8 {
		text := bytes.Repeat([]byte{byte('a' + i)}, 1<<14)
		wg.Go(func() {
			for range 10 {
				if err := durable.ReplaceAt(p.path("name"), text); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(p.path("name"))
	if err != nil || len(b) != 1<<14 || bytes.Count(b, b[:1]) != len(b) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	p.only("name")
	if err := durable.ReplaceAt(p.path("nowhere/name"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where there is no directory: %v", err)
	}
}

// A Write, Replace or Forget that fails changes nothing and leaves no draft.
func TestAFailureLeavesWhatThereWas(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.must(os.MkdirAll(p.path("folder/full"), 0o700))
	if err := durable.Replace(p.Root, "draft", "folder", []byte(fresh)); err == nil {
		t.Error("a directory was replaced")
	}
	if err := durable.Replace(p.Root, "folder", "name", []byte(fresh)); err == nil {
		t.Error("a directory was a draft")
	}
	for _, out := range []string{"../bait", p.bait} {
		if err := durable.Write(p.Root, out, []byte(fresh)); err == nil {
			t.Errorf("written to %s", out)
		}
		if err := durable.Replace(p.Root, "draft", out, []byte(fresh)); err == nil {
			t.Errorf("%s was replaced", out)
		}
		if err := durable.Forget(p.Root, out); err == nil {
			t.Errorf("%s was removed", out)
		}
	}
	p.holds("name", old)
	p.only("folder", "name")
}

// The partial draft of a killed writer disturbs nothing: readers have the old
// file, and the next writer replaces the draft.
func TestADraftOfAKilledWriterDisturbsNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.must(durable.Write(p.Root, "draft", []byte("half of wh")))
	p.holds("name", old)
	p.must(durable.Replace(p.Root, "draft", "name", []byte(fresh)))
	p.holds("name", fresh)
	p.only("name")
}

// While a file is replaced 200 times, a reader always finds a whole file, and a
// draft that is seen has mode 0600.
func TestAFileIsWholeAndPrivateWhileItIsReplaced(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	texts := [][]byte{bytes.Repeat([]byte("a"), 1<<16), bytes.Repeat([]byte("b"), 1<<15)}
	p.must(durable.Replace(p.Root, "draft", "name", texts[0]))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			b, err := os.ReadFile(p.path("name"))
			if err != nil || !bytes.Equal(b, texts[0]) && !bytes.Equal(b, texts[1]) {
				t.Errorf("a reader has %d bytes, %v", len(b), err)
				return
			}
			if fi, err := os.Lstat(p.path("draft")); err == nil && fi.Mode() != 0o600 {
				t.Errorf("the draft is %v", fi.Mode())
				return
			}
		}
	})
	for i := range 200 {
		p.must(durable.Replace(p.Root, "draft", "name", texts[i%2]))
	}
	close(stop)
	wg.Wait()
	p.only("name")
}
