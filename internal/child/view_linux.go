package child

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// view is the file system as one server sees it: the host's, with covers over what it must not see. It is made by the first
// process of the server's own mount namespace, before anything of the server runs.
//
// Covers are laid from the deepest path up, and what stays visible below a cover is bound through it with everything that
// was mounted there by then. So a cover holds by whatever path one comes, and one that is Doorward's own under all
// circumstances.
type view struct {
	plan    *plan
	covers  []cover  // what there is to cover
	program []string // what the server's program needs with itself
	visible []string // what the configuration names, as it is written and with links followed
	keeps   []string // shown below a cover, but no reason to leave one out
	own     []string // of Doorward's own: shown below its covers too
	scratch []string // covered by directories of its own that it may write
	hidden  int
	shown   []string // what would be hidden were it not named
	failed  []string // what could not be hidden
}

// null stands for an empty file.
const null = "/dev/null"

func newView(p *plan, program string, dir string) (*view, error) {
	all, err := present(p)
	if err != nil {
		return nil, err
	}
	v := &view{plan: p, covers: all}
	v.see(p.Read...)
	v.see(p.Write...)
	v.see(p.Named...)
	v.see(p.Dir)
	v.program = []string{program}
	if real, err := resolve(program); err == nil {
		v.program = append(v.program, real)
		v.seeHome(real)
	}
	v.see(v.program...)
	if p.Mode == Contain && dir != "/tmp" {
		v.keep(dir) // the daemon's own working directory, which nobody configured
	}
	if p.Mode == Contain {
		v.keep(packages(p.Named)...)
	}
	v.keep(kept(p)...)
	v.keep(p.Own...)
	v.own = bothWays(p.Own)
	if p.Mode == Strict {
		v.keep(p.Homes...) // each of its own, below what is left of /home
	}
	return v, nil
}

// seeHome adds what a program needs with itself: the directory above bin, or its own. Not one that holds more than programs:
// one that lies in /tmp does not show all of it.
func (v *view) seeHome(program string) {
	dir := filepath.Dir(program)
	if b := filepath.Base(dir); b == "bin" || b == ".bin" || b == "sbin" {
		dir = filepath.Dir(dir)
	}
	if dir != "/" && filepath.Base(dir) != ".local" && !slices.ContainsFunc(v.covers, func(c cover) bool { return c.path == dir }) {
		v.program = append(v.program, dir)
	}
}

func (v *view) see(paths ...string)  { v.visible = append(v.visible, bothWays(paths)...) }
func (v *view) keep(paths ...string) { v.keeps = append(v.keeps, bothWays(paths)...) }

// resolve follows all links of a path at the price of two system calls, and of one for what is not there: most of what is
// looked for is not.
func resolve(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// bothWays adds to paths where they lead.
func bothWays(paths []string) []string {
	var all []string
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			continue
		}
		all = append(all, filepath.Clean(p))
		if real, err := resolve(p); err == nil && real != filepath.Clean(p) {
			all = append(all, real)
		}
	}
	return all
}

// build lays all covers. An error means that something of Doorward's own would be seen, or nothing can be mounted at all.
func (v *view) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	var last string
	for _, c := range v.covers {
		if c.path == last {
			continue
		}
		last = c.path
		if err := v.lay(c); err != nil && (c.own || c.kind != empty) {
			return fmt.Errorf("hiding %s: %w", c.path, err)
		} else if err != nil {
			v.failed = append(v.failed, c.path)
		}
	}
	return v.protect()
}

// protect makes what is to be read read-only, apart from what is to be written below.
func (v *view) protect() error {
	var writable windows
	defer func() { writable.close() }()
	for _, path := range append([]string{v.plan.Dir}, v.plan.Write...) {
		if !slices.ContainsFunc(v.plan.Read, func(r string) bool { return below(path, r) || path == r }) {
			continue
		}
		if fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			writable = append(writable, window{path: path, fd: fd})
		}
	}
	for _, path := range v.plan.Read {
		if err := v.bindReadOnly(path); err != nil {
			return fmt.Errorf("making %s read-only: %w", path, err)
		}
	}
	for _, w := range writable {
		if err := w.mount(); err != nil {
			return fmt.Errorf("making %s writable: %w", w.path, err)
		}
	}
	return nil
}

// present lists the covers that have something to cover, by their real path, the deepest first; of two for the same path
// Doorward's own comes first, and then what the server can use.
func present(p *plan) ([]cover, error) {
	var all []cover
	for _, c := range covers(p, os.Geteuid() == 0) {
		real, err := resolve(c.path)
		switch {
		case absent(err), real == "/":
			continue
		case err != nil:
			return nil, fmt.Errorf("finding %s: %w", c.path, err)
		}
		c.path = real
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b cover) int {
		if a.path != b.path {
			return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(a.path, b.path))
		}
		return -cmp.Compare(rank(a), rank(b))
	})
	return all, nil
}

// absent: it is not there, or not for us to reach, and so not for the server either, who can do less.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ELOOP)
}

func rank(c cover) int {
	if c.own {
		return 1 + devices
	}
	return c.kind
}

// lay puts one cover in its place.
func (v *view) lay(c cover) error {
	if !c.own && slices.Contains(v.visible, c.path) {
		v.shown = append(v.shown, c.path)
		return nil
	}
	if slices.Contains(v.own, c.path) {
		return nil
	}
	info, err := os.Stat(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // below a cover of before
	}
	if err != nil {
		return err
	}
	v.hidden++
	if !info.IsDir() {
		return unix.Mount(null, c.path, "", unix.MS_BIND, "")
	}
	through, err := v.open(c)
	defer through.close()
	if err != nil {
		return err
	}
	if err := v.mount(c, len(through) > 0); err != nil {
		return err
	}
	for _, w := range through {
		if err := w.bind(); err != nil {
			return fmt.Errorf("showing %s: %w", w.path, err)
		}
		if !c.own {
			continue
		}
		if err := readOnly(w.path, true); err != nil { // a socket can be connected to all the same
			return fmt.Errorf("showing %s to read only: %w", w.path, err)
		}
	}
	if c.kind == devices {
		linkDevices()
	}
	if c.kind == scratch {
		v.scratch = append(v.scratch, c.path)
		return nil
	}
	return readOnly(c.path, false)
}

// mount mounts what is seen instead.
func (v *view) mount(c cover, holes bool) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	switch {
	case c.kind == scratch:
		return unix.Mount("tmpfs", c.path, "tmpfs", flags, v.scratchSize())
	case c.kind == devices:
		return unix.Mount("tmpfs", c.path, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=64k")
	case holes:
		return unix.Mount("tmpfs", c.path, "tmpfs", flags, "mode=0755,size=1m")
	}
	return unix.Mount("tmpfs", c.path, "tmpfs", flags|unix.MS_NOEXEC, "mode=0555,size=4k,nr_inodes=2")
}

// scratchSize keeps files in memory within what the server may have of it. Where that is no limit, half of the machine's
// memory is what the kernel allows.
func (v *view) scratchSize() string {
	if v.plan.Limits.Memory <= 0 {
		return "mode=1777"
	}
	return "mode=1777,size=" + strconv.FormatInt(v.plan.Limits.Memory, 10)
}

// window is a path that is seen through a cover.
type window struct {
	path string
	fd   int
	dir  bool
}

type windows []window

func (w windows) close() {
	for _, x := range w {
		_ = unix.Close(x.fd)
	}
}

// open takes hold of everything that stays visible below a cover, before it is laid. What is not there cannot be shown.
func (v *view) open(c cover) (windows, error) {
	paths := slices.Concat(v.visible, v.keeps)
	switch {
	case c.own:
		paths = slices.Clone(v.own)
	case c.kind == devices:
		paths = append(paths, commonDevices...)
		const options = "newinstance,ptmxmode=0666,mode=0620"
		if unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options) == nil {
			paths = append(paths, "/dev/pts") // else there are no terminals in there
		}
	}
	slices.Sort(paths)
	var all windows
	for _, path := range paths {
		if !below(path, c.path) || all.show(path) {
			continue
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			_ = unix.Close(fd)
			return all, err
		}
		all = append(all, window{path: path, fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR})
	}
	return all, nil
}

// show tells whether one of the windows shows path already.
func (w windows) show(path string) bool {
	return slices.ContainsFunc(w, func(x window) bool { return path == x.path || below(path, x.path) })
}

// below tells whether path lies in dir, and is not dir itself.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && len(rest) > 1 && rest[0] == '/'
}

// bind makes the place of a window in a cover that has just been laid, and binds it there, with all mounts below.
func (w window) bind() error {
	place := w.path
	if !w.dir {
		place = filepath.Dir(w.path)
	}
	if err := os.MkdirAll(place, 0o755); err != nil {
		return err
	}
	if !w.dir {
		fd, err := unix.Open(w.path, unix.O_CREAT|unix.O_RDONLY|unix.O_CLOEXEC, 0o444)
		if err != nil {
			return err
		}
		_ = unix.Close(fd)
	}
	return w.mount()
}

func (w window) mount() error {
	return unix.Mount("/proc/self/fd/"+strconv.Itoa(w.fd), w.path, "", unix.MS_BIND|unix.MS_REC, "")
}

// commonDevices are what is left of /dev. Terminals and shared memory are mounted anew.
var commonDevices = []string{null, "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm"}

// linkDevices adds the names that are links. What fails here is missed by whoever looks for it.
func linkDevices() {
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		_ = os.Symlink(target, "/dev/"+name)
	}
}

// bindReadOnly makes one visible path read-only, with all that is mounted below.
func (v *view) bindReadOnly(path string) error {
	if _, err := os.Stat(path); err != nil {
		return nil // not there: nothing to write
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return readOnly(path, true)
}

// readOnly takes the right to write from a mount.
func readOnly(path string, all bool) error {
	flags := uint(0)
	if all {
		flags = unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err != unix.ENOSYS {
		return err
	}
	// Kernels before 5.12: this one mount alone, and with the flags that it must keep.
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	const same = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_NODIRATIME // as MS_ of that name
	keep := uintptr(st.Flags) & same
	if st.Flags&unix.ST_RELATIME != 0 {
		keep |= unix.MS_RELATIME
	}
	return unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|keep, "")
}
