package credential_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/credential"
)

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestASweepRemovesEndedAndExpiredSessions(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	live, ended, expired := session(1), session(2), session(3)
	expired.Expires = time.Now().Add(-time.Second).UTC()
	paths := []string{write(t, dir, live), write(t, dir, ended), write(t, dir, expired), write(t, dir, ended)}
	var asked []string
	n, err := credential.Sweep(dir, func(id string) bool { asked = append(asked, id); return id == ended.SessionID })
	if err != nil || n != 3 || !there(paths[0]) || there(paths[1]) || there(paths[2]) || there(paths[3]) {
		t.Errorf("removed %d, %v; left are %v", n, err, names(t, filepath.Dir(paths[0])))
	}
	if slices.Sort(asked); !slices.Equal(asked, []string{live.SessionID, ended.SessionID, ended.SessionID}) {
		t.Errorf("asked for %v", asked)
	}
	if n, err := credential.Sweep(dir, nil); n != 0 || err != nil || !there(paths[0]) {
		t.Errorf("without a function that knows sessions: removed %d, %v", n, err)
	}
}

// A sweep removes the file of an ended session even if Find would refuse it for its mode or
// its links.
func TestASweepRemovesFilesThatFindRefuses(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	wide, linked := write(t, dir, session(1)), write(t, dir, session(2))
	other := filepath.Join(dir, "other")
	if err := errors.Join(os.Chmod(wide, 0o644), os.Link(linked, other)); err != nil {
		t.Fatal(err)
	}
	if n, err := credential.Sweep(dir, func(string) bool { return true }); n != 2 || err != nil || there(wide) || there(linked) || !there(other) {
		t.Errorf("removed %d, %v", n, err)
	}
}

func TestASweepNeverFollowsALink(t *testing.T) {
	t.Parallel()
	dir, elsewhere := runtimeDir(t), runtimeDir(t)
	victim := write(t, elsewhere, session(1))
	folder := filepath.Dir(write(t, dir, session(2)))
	old := filepath.Join(elsewhere, "old")
	must(t, os.WriteFile(old, nil, 0o600))
	older(t, old, 100*time.Hour)
	odd := []string{filepath.Join(folder, "a.json"), filepath.Join(folder, "b.json"), filepath.Join(folder, "c.new"),
		filepath.Join(folder, "d.json"), filepath.Join(folder, "e.json")}
	if err := errors.Join(os.Symlink(victim, odd[0]), os.Symlink(filepath.Dir(victim), odd[1]), os.Symlink(old, odd[2]),
		syscall.Mkfifo(odd[3], 0o600), os.Mkdir(odd[4], 0o700)); err != nil {
		t.Fatal(err)
	}
	older(t, odd[3], 100*time.Hour)
	n, err := credential.Sweep(dir, func(string) bool { return true })
	if n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	for _, path := range append(odd, victim, old) {
		if !there(path) {
			t.Errorf("%s is gone", path)
		}
	}
	must(t, credential.Remove(dir, session(1).SessionID))
	if !there(victim) || !there(odd[0]) {
		t.Error("Remove followed a link")
	}
}

func TestASweepRemovesFilesThatAreTooOld(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	folder := filepath.Dir(write(t, dir, session(1)))
	for name, tc := range map[string]struct {
		age  time.Duration
		want bool // it stays
	}{
		"fresh.new":  {10 * time.Second, true},
		"killed.new": {2 * time.Minute, false},
		"noise.json": {24 * time.Hour, true},
		"old.json":   {26 * time.Hour, false},
		"old":        {26 * time.Hour, false},
		"young":      {time.Hour, true},
	} {
		path := filepath.Join(folder, name)
		must(t, os.WriteFile(path, []byte("{"), 0o600))
		older(t, path, tc.age)
		_, err := credential.Sweep(dir, nil)
		must(t, err)
		if there(path) != tc.want {
			t.Errorf("%s is there: %v", name, !tc.want)
		}
	}
}

func TestASweepLeavesFilesOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a file to another user")
	}
	dir := runtimeDir(t)
	path := write(t, dir, session(1))
	must(t, os.Chown(path, 12345, 12345))
	if n, err := credential.Sweep(dir, func(string) bool { return true }); n != 0 || err != nil || !there(path) {
		t.Errorf("removed %d, %v", n, err)
	}
}

func TestRemoveTakesTheFilesOfOneSession(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	mine, again, other := write(t, dir, session(1)), write(t, dir, session(1)), write(t, dir, session(2))
	must(t, os.Chmod(again, 0o644))
	must(t, credential.Remove(dir, session(1).SessionID))
	if there(mine) || there(again) || !there(other) {
		t.Errorf("left are %v", names(t, filepath.Dir(other)))
	}
}
