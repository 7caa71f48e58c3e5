package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func (b *bed) keys() string { return filepath.Join(b.dir, keyFile) }

func TestKeysAreMadeOnceAndForUsAlone(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		fi, err := os.Lstat(b.keys())
		must(t, err)
		same(t, "mode", fi.Mode(), fs.FileMode(0o600))
		before, err := os.ReadFile(b.keys())
		must(t, err)
		b.restart()
		after, err := os.ReadFile(b.keys())
		must(t, err)
		same(t, "keys after a restart", string(after), string(before))
		if _, err := os.Lstat(filepath.Join(b.dir, keyNew)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}
	})
}

func TestTwoThatStartAtOnceHaveTheSameKeys(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	var wg sync.WaitGroup
	rings := make([]*ring, 8)
	for i := range rings {
		wg.Go(func() {
			r, err := openKeys(dir, time.Now())
			if err != nil {
				t.Error(err)
				return
			}
			rings[i] = r
		})
	}
	wg.Wait()
	for _, r := range rings {
		if r == nil || r.newest().id != rings[0].newest().id || len(r.keys) != 1 {
			t.Fatalf("%v beside %v", r, rings[0])
		}
	}
}

// A key file that other users could read or write, or that is damaged, is refused with
// a reason that names its directory. Nothing is changed.
func TestKeysThatMayBeKnownOrAreDamagedAreRefused(t *testing.T) {
	t.Parallel()
	rewrite := func(change func(text string) string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, []byte(change(string(text))), 0o600))
		}
	}
	chmod := func(mode fs.FileMode) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { must(t, os.Chmod(path, mode)) }
	}
	instead := func(put func(t *testing.T, there, path string)) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			there := filepath.Join(filepath.Dir(path), "there")
			must(t, os.Rename(path, there))
			put(t, there, path)
		}
	}
	edit := func(change func(doc *keysDoc)) func(t *testing.T, path string) {
		return rewrite(func(text string) string {
			var doc keysDoc
			must(t, json.Unmarshal([]byte(text), &doc))
			change(&doc)
			b, err := json.Marshal(doc)
			must(t, err)
			return string(b)
		})
	}
	for what, tc := range map[string]struct {
		do   func(t *testing.T, path string)
		want string
		root bool
	}{
		"everybody may read it":   {do: chmod(0o644), want: "mode 0644"},
		"the group may read it":   {do: chmod(0o640), want: "mode 0640"},
		"everybody may write it":  {do: chmod(0o602), want: "mode 0602"},
		"it is another user's":    {do: func(t *testing.T, path string) { must(t, os.Chown(path, 12345, 0)) }, want: "uid 12345", root: true},
		"it has a second name":    {do: func(t *testing.T, path string) { must(t, os.Link(path, path+".copy")) }, want: "more than one hard link"},
		"a link":                  {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink(there, path)) }), want: "not a regular file"},
		"a link inside":           {do: instead(func(t *testing.T, _, path string) { must(t, os.Symlink("there", path)) }), want: "not a regular file"},
		"a link to nothing":       {do: instead(func(t *testing.T, _, path string) { must(t, os.Symlink("nothing", path)) }), want: "not a regular file"},
		"a pipe":                  {do: instead(func(t *testing.T, _, path string) { must(t, syscall.Mkfifo(path, 0o600)) }), want: "not a regular file"},
		"a directory":             {do: instead(func(t *testing.T, _, path string) { must(t, os.Mkdir(path, 0o700)) }), want: "not a regular file"},
		"empty":                   {do: rewrite(func(string) string { return "" }), want: "damaged"},
		"zeros":                   {do: rewrite(func(s string) string { return strings.Repeat("\x00", len(s)) }), want: "damaged"},
		"cut short":               {do: rewrite(func(s string) string { return s[:len(s)/2] }), want: "damaged"},
		"with something after it": {do: rewrite(func(s string) string { return s + "{}" }), want: "damaged: there is data after its end"},
		"with an unknown key":     {do: rewrite(func(s string) string { return strings.Replace(s, "{", `{"x":1,`, 1) }), want: "damaged"},
		"of another version":      {do: edit(func(d *keysDoc) { d.Version = 2 }), want: "damaged: version 2"},
		"without keys":            {do: edit(func(d *keysDoc) { d.Keys = nil }), want: "damaged: it has 0 keys"},
		"with three keys":         {do: edit(func(d *keysDoc) { d.Keys = []keyDoc{d.Keys[0], d.Keys[0], d.Keys[0]} }), want: "damaged: it has 3 keys"},
		"with one key twice":      {do: edit(func(d *keysDoc) { d.Keys = []keyDoc{d.Keys[0], d.Keys[0]} }), want: "key 2"},
		"with one secret twice":   {do: edit(func(d *keysDoc) { d.Keys = append(d.Keys, d.Keys[0]); d.Keys[1].ID = "0123456789ab" }), want: "key 2"},
		"with a short secret":     {do: edit(func(d *keysDoc) { d.Keys[0].Secret = d.Keys[0].Secret[:40] }), want: "key 1"},
		"with a secret of zeros":  {do: edit(func(d *keysDoc) { d.Keys[0].Secret = strings.Repeat("A", 43) }), want: "key 1"},
		"with no secret":          {do: edit(func(d *keysDoc) { d.Keys[0].Secret = "" }), want: "key 1"},
		"with a dot in the id":    {do: edit(func(d *keysDoc) { d.Keys[0].ID = "a.b" }), want: "key 1"},
		"with an id of capitals":  {do: edit(func(d *keysDoc) { d.Keys[0].ID = "ABCDEF012345" }), want: "key 1"},
		"without the time":        {do: edit(func(d *keysDoc) { d.Keys[0].Made = time.Time{} }), want: "key 1"},
		"too large":               {do: rewrite(func(s string) string { return s + strings.Repeat(" ", maxKeys) }), want: "too large"},
		"too large to read":       {do: func(t *testing.T, path string) { must(t, os.Truncate(path, 1<<40)) }, want: "too large"},
		"in a directory of all":   {do: func(t *testing.T, path string) { must(t, os.Chmod(filepath.Dir(path), 0o777)) }, want: "can be written by others"},
		"with a lock that is a fifo": {do: func(t *testing.T, path string) {
			lock := filepath.Join(filepath.Dir(path), keyLock)
			must(t, os.Remove(lock))
			must(t, syscall.Mkfifo(lock, 0o600))
		}, want: "not a regular file"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if tc.root && os.Geteuid() != 0 {
				t.Skip("needs root to give a file to another user")
			}
			dir := filepath.Join(t.TempDir(), "state")
			r, err := openKeys(dir, time.Now())
			must(t, err)
			path := filepath.Join(dir, keyFile)
			tc.do(t, path)
			before := picture(t, dir)
			got, err := openKeys(dir, time.Now())
			if got != nil || err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, %v; want %q and %s", got, err, tc.want, path)
			}
			if secret := base64url.EncodeToString(r.newest().secret); strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), secret[:20]) {
				t.Errorf("the error quotes the key: %v", err)
			}
			if after := picture(t, dir); !slices.Equal(before, after) {
				t.Errorf("before %v, after %v", before, after)
			}
		})
	}
}

// picture lists the name, mode, size and time of every file in a directory.
func picture(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		fi, err := e.Info()
		must(t, err)
		out = append(out, fmt.Sprint(e.Name(), fi.Mode(), fi.Size(), fi.ModTime()))
	}
	return out
}

// A file that was planted under the name of the next keys is not used: the keys are
// written to a new file with mode 0600.
func TestAPlantedFileDoesNotBecomeTheKeys(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o700))
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("mine"), 0o644))
	for n, plant := range []func(path string) error{
		func(path string) error { return os.Symlink(victim, path) },
		func(path string) error { return os.Link(victim, path) },
		func(path string) error { return os.WriteFile(path, nil, 0o666) },
		func(path string) error { return syscall.Mkfifo(path, 0o666) },
	} {
		must(t, plant(filepath.Join(dir, keyNew)))
		_, err := openKeys(dir, time.Now())
		must(t, err)
		fi, err := os.Lstat(filepath.Join(dir, keyFile))
		if text, _ := os.ReadFile(victim); err != nil || fi.Mode() != 0o600 || string(text) != "mine" {
			t.Errorf("%d: %v, %v, and the victim holds %q", n, fi.Mode(), err, text)
		}
		must(t, os.Remove(filepath.Join(dir, keyFile)))
	}
}

func TestKeysAreRotatedAfterThirtyDays(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		b.pass(keyLife - time.Second)
		must(t, upkeep{b.Keeper}.rotate())
		old, s := b.issue(ask())
		first := b.ring.Load().newest().id
		b.pass(time.Second)
		must(t, upkeep{b.Keeper}.rotate())
		second := b.ring.Load().newest().id
		if first == second || len(b.ring.Load().keys) != 2 {
			t.Fatalf("keys %s and %s", first, second)
		}
		b.good(old, owner())
		token, _ := b.issue(ask())
		same(t, "the key of a new token", strings.Split(token, ".")[1], second)
		renewed, _, err := b.Renew(t.Context(), s, said)
		must(t, err)
		same(t, "the key of a renewed token", strings.Split(renewed, ".")[1], second)
		b.restart()
		for _, text := range []string{old, token, renewed} {
			b.good(text, owner())
		}
		same(t, "keys after a restart", len(b.ring.Load().keys), 2)
		b.pass(keyLife)
		b.restart() // a start rotates too
		same(t, "keys", len(b.ring.Load().keys), 2)
		same(t, "the one before", b.ring.Load().keys[1].id, second)
		if _, held := b.ring.Load().find(first); held {
			t.Error("the key before the last counts still")
		}
		b.bad(old, owner(), MAC)
		text, err := os.ReadFile(b.keys())
		must(t, err)
		if strings.Contains(string(text), first) {
			t.Error("the key before the last is on the disk")
		}
	})
}

// A token stays valid for its whole life after a rotation, by the key before.
func TestATokenOutlivesTheKeyThatSignedIt(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		b.pass(keyLife - time.Minute)
		token, _ := b.issue(ask())
		for range 23 {
			b.pass(time.Hour)
			upkeep{b.Keeper}.turn()
			must(t, upkeep{b.Keeper}.rotate())
			b.good(token, owner())
		}
		b.pass(time.Hour)
		upkeep{b.Keeper}.turn()
		b.bad(token, owner(), Expired)
	})
}

// A key with a time in the future, from a wrong clock, is rotated. It would otherwise
// never be due.
func TestAKeyFromTheFutureIsRotated(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		first := b.ring.Load().newest().id
		b.pass(-MaxLife - 2*time.Second)
		must(t, upkeep{b.Keeper}.rotate())
		if b.ring.Load().newest().id == first {
			t.Error("it goes on")
		}
	})
}

func TestARotationThatCannotBeWrittenIsNone(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		token, _ := b.issue(ask())
		first := b.ring.Load().newest().id
		must(t, os.Chmod(b.keys(), 0o644))
		b.pass(keyLife)
		if err := (upkeep{b.Keeper}).rotate(); err == nil || b.ring.Load().newest().id != first {
			t.Fatalf("rotated: %v", err)
		}
		must(t, os.Chmod(b.keys(), 0o600))
		b.pass(-keyLife)
		b.good(token, owner())
		b.pass(keyLife)
		must(t, upkeep{b.Keeper}.rotate())
		if b.ring.Load().newest().id == first {
			t.Error("the keys are not rotated after the file can be written again")
		}
	})
}

// A rotation works when the key file was removed under a running daemon. It takes the
// keys of the file when another daemon has put newer ones there.
func TestARotationOverOtherKeys(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		b.pass(keyLife - time.Minute)
		token, _ := b.issue(ask())
		must(t, os.Remove(b.keys()))
		b.pass(time.Minute)
		must(t, upkeep{b.Keeper}.rotate())
		same(t, "keys", len(b.ring.Load().keys), 2)
		b.good(token, owner())
		b.restart()
		b.good(token, owner())

		must(t, os.Remove(b.keys()))
		b.pass(2 * keyLife)
		other, err := openKeys(b.dir, b.now())
		must(t, err)
		must(t, upkeep{b.Keeper}.rotate())
		same(t, "the newest", b.ring.Load().newest().id, other.newest().id)
	})
}

func TestAKeyDoesNotPrintItself(t *testing.T) {
	t.Parallel()
	k := newKey(time.Now())
	r := &ring{[]key{k}}
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s %q %x %d", k, k, k, k, k, k, k), fmt.Sprintf("%v %+v %#v %+v", r, *r, r.keys, struct{ r *ring }{r})} {
		if strings.Contains(text, k.id) || strings.Contains(text, fmt.Sprint(k.secret[0], " ", k.secret[1])) || strings.Contains(text, fmt.Sprintf("%x", k.secret[:4])) {
			t.Errorf("it prints %s", text)
		}
	}
	if b, err := json.Marshal(map[string]any{"k": k}); err == nil {
		t.Errorf("it is written %s", b)
	}
	if bytes.Equal(k.secret, newKey(time.Now()).secret) || bytes.Equal(k.secret, make([]byte, keyBytes)) {
		t.Error("two keys are one")
	}
}

func FuzzKeys(f *testing.F) {
	good, err := (&ring{[]key{newKey(time.Unix(1, 0)), newKey(time.Unix(1, 0))}}).encode()
	must(f, err)
	f.Add(good)
	f.Add([]byte(`{"version":1,"keys":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRing(b)
		if (r == nil) == (err == nil) {
			t.Fatalf("%v, %v", r, err)
		}
		if err != nil {
			return
		}
		again, err := r.encode()
		must(t, err)
		back, err := parseRing(again)
		if err != nil || len(back.keys) != len(r.keys) || back.newest().id != r.newest().id || !bytes.Equal(back.newest().secret, r.newest().secret) {
			t.Errorf("%q is read, and written as %q: %v", b, again, err)
		}
		if len(r.newest().secret) != keyBytes {
			t.Errorf("a key of %d bytes", len(r.newest().secret))
		}
	})
}

// A rotation does not take keys from another directory that was put in the place of
// the state directory.
func TestARotationTakesNoKeysOfAnotherDirectory(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		first := b.ring.Load().newest().id
		b.pass(keyLife)
		must(t, os.Rename(b.dir, b.dir+".away"))
		must(t, os.Mkdir(b.dir, 0o700))
		planted, err := openKeys(b.dir, b.now())
		must(t, err)
		if err := (upkeep{b.Keeper}).rotate(); err == nil || b.ring.Load().newest().id != first || b.ring.Load().newest().id == planted.newest().id {
			t.Errorf("rotated: %v", err)
		}
		must(t, os.RemoveAll(b.dir))
		must(t, os.Rename(b.dir+".away", b.dir))
		must(t, upkeep{b.Keeper}.rotate())
	})
}
