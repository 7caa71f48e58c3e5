package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const page = 4096

// disk is a file system in memory. Beside the contents that programs see, it keeps those that a
// real disk would have after a power loss: the data and length of each file as of its last sync.
// Names (create, rename, unlink, mkdir, mode) are durable at once, so a missing sync of a
// directory is not detected.
type disk struct {
	mu   sync.Mutex
	root *node
	last uint64 // inode number
	deaf string // prefix of the names of files that are never synced, for controls; empty: none
}

// node is a file or a directory. Its fields are guarded by the disk's mutex.
type node struct {
	ino      uint64
	mode     uint32 // permission bits only
	uid, gid uint32
	links    uint32
	mtime    time.Time

	children map[string]*node // nil for a file

	data    []byte         // what programs see
	durable []byte         // contents after a power loss
	dirty   map[int64]bool // pages of data that differ from durable, or may
	deaf    bool           // a sync does nothing
}

func newDisk() *disk {
	d := &disk{}
	d.root = d.make(0o700, true)
	return d
}

func (d *disk) make(mode uint32, dir bool) *node {
	d.last++
	n := &node{ino: d.last, mode: mode, links: 1, mtime: time.Now(), dirty: make(map[int64]bool)}
	if dir {
		n.children = make(map[string]*node)
	}
	return n
}

func (n *node) isDir() bool { return n.children != nil }

// write stores data at off. With synced it is durable at once, as with O_SYNC.
func (n *node) write(data []byte, off int64, synced bool) {
	if end := off + int64(len(data)); end > int64(len(n.data)) {
		n.resize(end)
	}
	copy(n.data[off:], data)
	for p := off / page; p*page < off+int64(len(data)); p++ {
		n.dirty[p] = true
	}
	n.mtime = time.Now()
	if synced {
		n.sync()
	}
}

// resize sets the visible length and marks every page between the old and the new length as
// dirty.
func (n *node) resize(size int64) {
	old := int64(len(n.data))
	switch {
	case size < old:
		clear(n.data[size:]) // a later extension must read zeros here
		n.data = n.data[:size]
	case size <= int64(cap(n.data)):
		n.data = n.data[:size]
	default:
		n.data = append(n.data, make([]byte, size-old)...)
	}
	for p := min(old, size) / page; p*page < max(old, size); p++ {
		n.dirty[p] = true
	}
	n.mtime = time.Now()
}

// sync makes data and length durable.
func (n *node) sync() {
	if n.deaf {
		return
	}
	n.durable = fit(n.durable, len(n.data))
	for p := range n.dirty {
		n.keep(p)
	}
	clear(n.dirty)
}

// keep copies one page to the durable contents, up to the durable length.
func (n *node) keep(p int64) {
	from := p * page
	if to := min(from+page, int64(len(n.data)), int64(len(n.durable))); from < to {
		copy(n.durable[from:to], n.data[from:to])
	}
}

func fit(b []byte, size int) []byte {
	if size <= len(b) {
		clear(b[size:])
		return b[:size]
	}
	return append(b, make([]byte, size-len(b))...)
}

// lose simulates a power loss. chance is the probability that an unsynced page, or an unsynced
// length, has reached the disk anyway, independently of the others. 0 loses all of them: no real
// disk does so, but it is the hardest case for a program that does not sync.
func (d *disk) lose(chance float64, random *rand.Rand) (lostPages int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.files() {
		lostPages += n.lose(chance, random)
	}
	return lostPages
}

func (n *node) lose(chance float64, random *rand.Rand) (lost int) {
	if len(n.data) != len(n.durable) && random.Float64() < chance {
		n.durable = fit(n.durable, len(n.data))
	}
	for _, p := range sorted(n.dirty) {
		if random.Float64() < chance {
			n.keep(p)
		} else {
			lost++
		}
	}
	n.data = bytes.Clone(n.durable)
	clear(n.dirty)
	return lost
}

// sorted orders the pages, so that a seed always makes the same choices.
func sorted(pages map[int64]bool) []int64 {
	all := make([]int64, 0, len(pages))
	for p := range pages {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// files returns all files that have a name.
func (d *disk) files() map[*node]bool {
	found := make(map[*node]bool)
	var walk func(*node)
	walk = func(dir *node) {
		for _, n := range dir.children {
			if n.isDir() {
				walk(n)
			} else {
				found[n] = true
			}
		}
	}
	walk(d.root)
	return found
}

// create adds a file or directory to dir.
func (d *disk) create(dir *node, name string, mode uint32, isDir bool) (*node, syscall.Errno) {
	if dir.children[name] != nil {
		return nil, syscall.EEXIST
	}
	n := d.make(mode, isDir)
	n.deaf = d.deaf != "" && strings.HasPrefix(name, d.deaf)
	dir.children[name] = n
	return n, 0
}

func (d *disk) remove(dir *node, name string, isDir bool) syscall.Errno {
	n := dir.children[name]
	switch {
	case n == nil:
		return syscall.ENOENT
	case isDir && !n.isDir():
		return syscall.ENOTDIR
	case !isDir && n.isDir():
		return syscall.EISDIR
	case len(n.children) > 0:
		return syscall.ENOTEMPTY
	}
	n.links--
	delete(dir.children, name)
	return 0
}

func (d *disk) rename(from *node, name string, to *node, newName string, replace bool) syscall.Errno {
	n, old := from.children[name], to.children[newName]
	switch {
	case n == nil:
		return syscall.ENOENT
	case old == n:
		return 0
	case old != nil && !replace:
		return syscall.EEXIST
	case old != nil && old.isDir() != n.isDir():
		return syscall.EISDIR
	case old != nil && len(old.children) > 0:
		return syscall.ENOTEMPTY
	case old != nil:
		old.links--
	}
	delete(from.children, name)
	to.children[newName] = n
	return 0
}
