package main

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// fill is a block of n bytes.
func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func TestOnlyWhatWasSyncedIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(n *node)
		want string // one letter for each page, lower case for half a page; see pages
	}{
		"never synced":                 {func(n *node) { n.write(fill('A', page), 0, false) }, ""},
		"synced":                       {func(n *node) { n.write(fill('A', page), 0, false); n.sync() }, "A"},
		"O_SYNC":                       {func(n *node) { n.write(fill('A', page), 0, true) }, "A"},
		"written over after the sync":  {func(n *node) { n.write(fill('A', 2*page), 0, true); n.write(fill('B', page), page, false) }, "AA"},
		"appended after the sync":      {func(n *node) { n.write(fill('A', page), 0, true); n.write(fill('B', page), page, false) }, "A"},
		"truncated after the sync":     {func(n *node) { n.write(fill('A', 2*page), 0, true); n.resize(page) }, "AA"},
		"truncated and synced":         {func(n *node) { n.write(fill('A', 2*page), 0, true); n.resize(page); n.sync() }, "A"},
		"truncated, grown and synced":  {func(n *node) { n.write(fill('A', 2*page), 0, true); n.resize(page); n.resize(2 * page); n.sync() }, "A0"},
		"a length that ends in a page": {func(n *node) { n.write(fill('A', page/2), 0, false); n.sync() }, "a"},
		"a hole":                       {func(n *node) { n.write(fill('B', page), page, true) }, "0B"},
		"cut in a page and grown, synced": {func(n *node) {
			n.write(fill('A', page), 0, true)
			n.resize(page / 2)
			n.resize(page)
			n.sync()
		}, "a."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk()
			n, _ := d.create(d.root, "f", 0o600, false)
			c.do(n)
			d.lose(0, rand.New(rand.NewPCG(1, 1)))
			if got := pages(n.data); got != c.want {
				t.Errorf("left: %q, want %q", got, c.want)
			}
			if !bytes.Equal(n.data, n.durable) || len(n.dirty) > 0 {
				t.Error("what programs see differs from the disk after the loss")
			}
		})
	}
}

// pages writes each page as one letter, half a page in lower case, and a following half page of zeros as a dot.
func pages(data []byte) string {
	var s strings.Builder
	for len(data) > 0 {
		p := data[:min(page, len(data))]
		data = data[len(p):]
		name := string(p[0])
		if p[0] == 0 {
			name = "0"
		}
		half := len(p) < page
		if !half && p[page-1] != p[0] {
			half, name = true, name+"."
		}
		if half {
			name = strings.ToLower(name)
		}
		s.WriteString(name)
	}
	return s.String()
}

func TestSomeOfTheUnsyncedIsLeftInAnyOrder(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for seed := range uint64(200) {
		d := newDisk()
		n, _ := d.create(d.root, "f", 0o600, false)
		n.write(fill('A', 2*page), 0, true)
		n.write(fill('B', 3*page), 0, false)
		d.lose(0.5, rand.New(rand.NewPCG(seed, 0)))
		seen[pages(n.data)] = true
	}
	for _, want := range strings.Fields("AA AB BA BB AA0 AAB AB0 ABB BA0 BAB BB0 BBB") {
		if !seen[want] {
			t.Errorf("%s never happens", want)
		}
		delete(seen, want)
	}
	for what := range seen {
		t.Errorf("%s must not happen", what)
	}
}

func TestNamesAreDurableAtOnce(t *testing.T) {
	t.Parallel()
	d := newDisk()
	old, _ := d.create(d.root, "old", 0o600, false)
	old.write([]byte("old"), 0, true)
	fresh, _ := d.create(d.root, "fresh", 0o600, false)
	fresh.write([]byte("never synced"), 0, false)
	if errno := d.rename(d.root, "fresh", d.root, "old", true); errno != 0 {
		t.Fatal(errno)
	}
	d.lose(0, rand.New(rand.NewPCG(1, 1)))
	if n := d.root.children["old"]; n != fresh || len(n.data) != 0 || len(d.root.children) != 1 {
		t.Errorf("a file that was renamed before its sync: %q", n.data)
	}
}
