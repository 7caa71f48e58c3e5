package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// mounted is a disk that is mounted at a directory.
type mounted struct {
	dir    string
	server *fuse.Server
	syncs  atomic.Int64 // syncs and synchronous writes
}

// mount mounts the disk at dir. There is no write-back cache, so all writes of a killed program
// have arrived here. Locks are handled by the kernel.
func mount(d *disk, dir string) (*mounted, error) {
	m := &mounted{dir: dir}
	fresh := time.Duration(0) // there is one kernel only, but caching would gain nothing
	server, err := fs.Mount(dir, &entry{disk: d, node: d.root, m: m}, &fs.Options{
		MountOptions: fuse.MountOptions{
			FsName: "powerloss", Name: "powerloss",
			DirectMount: true, DisableXAttrs: true,
		},
		EntryTimeout: &fresh, AttrTimeout: &fresh, NegativeTimeout: &fresh,
		NullPermissions: true,
	})
	if err != nil {
		return nil, fmt.Errorf("mounting a FUSE file system: %w", err)
	}
	m.server = server
	return m, nil
}

// unmount waits until the file system is not in use any more.
func (m *mounted) unmount() error {
	var err error
	for range 1000 {
		if err = m.server.Unmount(); err == nil {
			m.server.Wait()
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.Join(fmt.Errorf("unmounting: %w", err), syscall.Unmount(m.dir, syscall.MNT_DETACH))
}

// entry is a node within one mount.
type entry struct {
	fs.Inode
	disk *disk
	node *node
	m    *mounted
}

var (
	_ fs.NodeLookuper  = (*entry)(nil)
	_ fs.NodeReaddirer = (*entry)(nil)
	_ fs.NodeGetattrer = (*entry)(nil)
	_ fs.NodeSetattrer = (*entry)(nil)
	_ fs.NodeCreater   = (*entry)(nil)
	_ fs.NodeMkdirer   = (*entry)(nil)
	_ fs.NodeLinker    = (*entry)(nil)
	_ fs.NodeUnlinker  = (*entry)(nil)
	_ fs.NodeRmdirer   = (*entry)(nil)
	_ fs.NodeRenamer   = (*entry)(nil)
	_ fs.NodeOpener    = (*entry)(nil)
	_ fs.NodeReader    = (*entry)(nil)
	_ fs.NodeWriter    = (*entry)(nil)
	_ fs.NodeFsyncer   = (*entry)(nil)
	_ fs.NodeFlusher   = (*entry)(nil)
	_ fs.NodeAllocater = (*entry)(nil)
	_ fs.NodeStatfser  = (*entry)(nil)
)

// handle is an open file; writes through it may be synchronous.
type handle struct{ synced bool }

func newHandle(flags uint32) *handle {
	return &handle{synced: flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0}
}

func (e *entry) attr(out *fuse.Attr) {
	n := e.node
	out.Ino, out.Mode, out.Nlink = n.ino, n.mode, n.links
	out.Owner = fuse.Owner{Uid: n.uid, Gid: n.gid}
	out.Size, out.Blksize, out.Blocks = uint64(len(n.data)), page, uint64(len(n.data)+511)/512
	out.SetTimes(&n.mtime, &n.mtime, &n.mtime)
	out.Mode |= e.kind()
}

func (e *entry) kind() uint32 {
	if e.node.isDir() {
		return syscall.S_IFDIR
	}
	return syscall.S_IFREG
}

// child returns the inode for the result of a look-up. The kernel may know the inode already; it
// is identified by its number.
func (e *entry) child(ctx context.Context, n *node, out *fuse.EntryOut) *fs.Inode {
	c := &entry{disk: e.disk, node: n, m: e.m}
	c.attr(&out.Attr)
	return e.NewInode(ctx, c, fs.StableAttr{Mode: c.kind(), Ino: n.ino})
}

func (e *entry) lock() func() {
	e.disk.mu.Lock()
	return e.disk.mu.Unlock
}

// Lookup finds a name.
func (e *entry) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	defer e.lock()()
	n := e.node.children[name]
	if n == nil {
		return nil, syscall.ENOENT
	}
	return e.child(ctx, n, out), 0
}

// Readdir lists a directory.
func (e *entry) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	defer e.lock()()
	var list []fuse.DirEntry
	for name, n := range e.node.children {
		c := entry{node: n}
		list = append(list, fuse.DirEntry{Name: name, Ino: n.ino, Mode: c.kind()})
	}
	return fs.NewListDirStream(list), 0
}

// Getattr handles stat.
func (e *entry) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	defer e.lock()()
	e.attr(&out.Attr)
	return 0
}

// Setattr handles chmod, chown, truncate and utimes. A new length is like data: the next sync
// makes it durable.
func (e *entry) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	defer e.lock()()
	if size, ok := in.GetSize(); ok {
		if e.node.isDir() {
			return syscall.EISDIR
		}
		e.node.resize(int64(size))
	}
	if mode, ok := in.GetMode(); ok {
		e.node.mode = mode & 0o7777
	}
	if uid, ok := in.GetUID(); ok {
		e.node.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		e.node.gid = gid
	}
	if mtime, ok := in.GetMTime(); ok {
		e.node.mtime = mtime
	}
	e.attr(&out.Attr)
	return 0
}

func (e *entry) add(ctx context.Context, name string, mode uint32, isDir bool, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	defer e.lock()()
	n, errno := e.disk.create(e.node, name, mode&0o7777, isDir)
	if errno != 0 {
		return nil, errno
	}
	if caller, ok := fuse.FromContext(ctx); ok {
		n.uid, n.gid = caller.Uid, caller.Gid
	}
	return e.child(ctx, n, out), 0
}

// Create makes and opens a file.
func (e *entry) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	n, errno := e.add(ctx, name, mode, false, out)
	return n, newHandle(flags), 0, errno
}

// Mkdir makes a directory.
func (e *entry) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return e.add(ctx, name, mode, true, out)
}

// Link gives a file one more name.
func (e *entry) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	defer e.lock()()
	t, ok := target.(*entry)
	if !ok || t.node.isDir() {
		return nil, syscall.EPERM
	}
	if e.node.children[name] != nil {
		return nil, syscall.EEXIST
	}
	t.node.links++
	e.node.children[name] = t.node
	return e.child(ctx, t.node, out), 0
}

// Unlink removes a file's name.
func (e *entry) Unlink(_ context.Context, name string) syscall.Errno {
	defer e.lock()()
	return e.disk.remove(e.node, name, false)
}

// Rmdir removes an empty directory.
func (e *entry) Rmdir(_ context.Context, name string) syscall.Errno {
	defer e.lock()()
	return e.disk.remove(e.node, name, true)
}

// Rename moves a name. It replaces an existing target unless RENAME_NOREPLACE is set.
func (e *entry) Rename(_ context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	const noReplace = 1
	defer e.lock()()
	to, ok := parent.(*entry)
	if !ok || flags&^noReplace != 0 {
		return syscall.EINVAL
	}
	return e.disk.rename(e.node, name, to.node, newName, flags&noReplace == 0)
}

// Open opens a file. O_TRUNC arrives as a separate Setattr.
func (e *entry) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return newHandle(flags), 0, 0
}

// Read returns the visible contents, synced or not.
func (e *entry) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	defer e.lock()()
	if off >= int64(len(e.node.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(dest[:copy(dest, e.node.data[off:])]), 0
}

// Write changes the visible contents; with O_SYNC or O_DSYNC the durable ones too.
func (e *entry) Write(_ context.Context, f fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	defer e.lock()()
	h, _ := f.(*handle)
	synced := h != nil && h.synced
	if synced {
		e.m.syncs.Add(1)
	}
	e.node.write(data, off, synced)
	return uint32(len(data)), 0
}

// Fsync handles fsync, fdatasync and msync(MS_SYNC).
func (e *entry) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	defer e.lock()()
	if !e.node.isDir() {
		e.node.sync()
	}
	e.m.syncs.Add(1)
	return 0
}

// Flush handles close. It makes nothing durable.
func (e *entry) Flush(context.Context, fs.FileHandle) syscall.Errno { return 0 }

// Allocate handles fallocate without mode flags.
func (e *entry) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	defer e.lock()()
	if mode != 0 {
		return syscall.ENOTSUP
	}
	if end := int64(off + size); end > int64(len(e.node.data)) {
		e.node.resize(end)
	}
	return 0
}

// Statfs reports plenty of free space.
func (e *entry) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	*out = fuse.StatfsOut{Blocks: 1 << 24, Bfree: 1 << 23, Bavail: 1 << 23, Files: 1 << 20, Ffree: 1 << 19, Bsize: page, Frsize: page, NameLen: 255}
	return 0
}
