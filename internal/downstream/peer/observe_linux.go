package peer

import (
	"context"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Observer examines processes. It caches the digests of executables, so that each is read
// once.
type Observer struct{ digests *digests }

// NewObserver makes an Observer.
func NewObserver(l Limits) *Observer { return &Observer{newDigests(l.withDefaults())} }

// Observe examines the process of c. It opens a handle on the program first, reads
// everything else, and then checks that the process is alive and still runs that program.
// If not, it returns no evidence. It returns none either for a process in foreign
// namespaces, where numbers and paths have another meaning.
func (o *Observer) Observe(ctx context.Context, c *attest.Credentials) Evidence {
	if c == nil || c.PID <= 0 || c.Foreign || !ownProc() {
		return Evidence{}
	}
	image := keepImage(c, openImage(c.PID))
	e := o.read(ctx, c.PID, image)
	if !c.Alive() || image != nil && !image.Holds() {
		return Evidence{}
	}
	e.Image = image
	return e
}

// keepImage ties an image to c: closing c releases it.
func keepImage(c *attest.Credentials, m *Image) *Image {
	if m == nil || c.OnClose(m.Release) {
		return m
	}
	m.Release()
	return nil
}

// ownProc reports whether /proc belongs to this process's pid namespace. In a /proc of
// another one, the numbers name other processes.
func ownProc() bool {
	s, err := os.Readlink("/proc/self")
	return err == nil && s == strconv.Itoa(os.Getpid())
}

func (o *Observer) read(ctx context.Context, pid int32, image *Image) (e Evidence) {
	if image != nil {
		e.Exe, e.SHA256 = o.exe(ctx, pid)
	}
	before, ok := look(pid)
	if !ok {
		return Evidence{}
	}
	e.Start, e.Process = seconds(before.start), attest.Instance(pid, before.start)
	e.Cgroup = cgroup(pid)
	e.Unit = unit(e.Cgroup)
	parent := before.parent
	exe := parentExe(parent)
	family := ""
	if r, ok := look(parent); ok && parent > 0 {
		family = attest.Instance(parent, r.start)
	}
	parents := ancestors(parent)
	// The children of a process are adopted when it ends. If the parent is the same
	// before and after, it was the parent throughout, and its number was not reused.
	if after, ok := look(pid); ok && after.parent == parent && parent > 0 {
		e.ParentPID, e.ParentProcess, e.ParentExe, e.Parents = parent, family, exe, parents
	}
	return e
}

// exe returns path and digest of the running file, through a handle that pins the file
// without a request to the server of its file system.
func (o *Observer) exe(ctx context.Context, pid int32) (path, sum string) {
	link := "/proc/" + strconv.Itoa(int(pid)) + "/exe"
	fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", ""
	}
	f := exeFile{fd}
	id, ok := identify(fd, "")
	if !ok {
		f.close()
		return "", ""
	}
	path = named(link, id)
	return path, o.digests.of(ctx, f, id)
}

func parentExe(pid int32) string {
	if pid <= 0 {
		return ""
	}
	link := "/proc/" + strconv.Itoa(int(pid)) + "/exe"
	fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	id, ok := identify(fd, "")
	if !ok {
		return ""
	}
	return named(link, id)
}

const deleted = " (deleted)"

// named reads the path that the kernel gives for a running file; empty: unknown. The
// kernel marks a deleted file by a suffix of the name. An existing file whose name has
// that suffix would look deleted, so it gets no name.
func named(link string, id fileID) string {
	path, err := os.Readlink(link)
	if err != nil || !strings.HasPrefix(path, "/") || !utf8.ValidString(path) {
		return ""
	}
	if strings.HasSuffix(path, deleted) {
		if there, ok := identify(unix.AT_FDCWD, path); ok && there.same(id) {
			return ""
		}
	}
	return path
}
