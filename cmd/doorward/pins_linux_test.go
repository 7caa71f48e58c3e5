package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// Another owner, group or mode of a file is another stamp.
func TestAnotherOwnerIsAnotherStamp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*syscall.Stat_t){
		"user": func(s *syscall.Stat_t) { s.Uid++ }, "group": func(s *syscall.Stat_t) { s.Gid++ }, "nothing": func(*syscall.Stat_t) {},
	} {
		before, after := new(stats).one(path), new(stats).one(path)
		change(after.info.Sys().(*syscall.Stat_t))
		if got := before.equal(after); got != (name == "nothing") {
			t.Errorf("%s: equal is %v", name, got)
		}
	}
}

// A file whose file system does not answer has no stamp, and is not asked again. Other files have
// theirs. When it answers, it has a stamp, which is a change.
func TestAFileWithoutAnAnswerHasNoStamp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other, hung := filepath.Join(dir, "other"), filepath.Join(dir, "hung")
	for _, path := range []string{other, hung} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan os.FileInfo, 1)
		s := stats{asked: map[string]chan os.FileInfo{hung: answer}}
		for range 3 {
			if got := s.of([]string{hung, other}); got[0].info != nil || got[1].info == nil || len(s.asked) != 1 || s.asked[hung] != answer {
				t.Fatalf("got %v, asked %v", got, s.asked)
			}
		}
		info, err := os.Stat(hung)
		if err != nil {
			t.Fatal(err)
		}
		answer <- info
		for range 2 {
			if got := s.of([]string{hung}); !got[0].equal(stamp{info}) || len(s.asked) != 0 {
				t.Errorf("got %v, asked %v", got, s.asked)
			}
		}
	})
}

// The reason why a link to another directory is not followed says what to do.
func TestAMovedFileIsRefusedWithTheRemedy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "doorward.yaml")
	link := func(to string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to, "doorward.yaml"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, to, "doorward.yaml"), path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	p := newPins()
	link("a")
	f, err := p.open(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	link("b")
	if _, err := p.open(path); err == nil || !strings.Contains(err.Error(), "restart the daemon") || !strings.Contains(err.Error(), filepath.Join(dir, "b")) {
		t.Errorf("got %v", err)
	}
}
