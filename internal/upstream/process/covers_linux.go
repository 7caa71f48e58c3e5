package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cover is a path of the host, with all links followed, that must stay hidden inside of what a server is granted.
type cover struct {
	path   string
	own    bool // Doorward's own: hidden even if it is named
	engine bool // of engines: hidden unless it is named by write
	dir    bool
}

// coversOf lists the paths that must stay hidden, each with the other paths by which the host's mounts show it. Paths
// that are neither in a layer nor above one are left out.
func coversOf(p *plan, shown layers, asks *patience) ([]cover, error) {
	var wanted []cover
	for _, path := range p.Hide {
		wanted = append(wanted, cover{path: path, own: true})
	}
	for _, path := range secretPaths(p) {
		wanted = append(wanted, cover{path: path})
	}
	for _, path := range engineSockets(p.Homes) {
		wanted = append(wanted, cover{path: path, engine: true})
	}
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	var all []cover
	for _, c := range wanted {
		asks.ask(c.path)
		found, err := c.locate(mounts, shown)
		if err != nil && !absent(err) && !(c.engine && dead(err)) {
			return nil, fmt.Errorf("finding %s: %w", c.path, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// secretPaths lists paths that hold credentials.
func secretPaths(p *plan) []string {
	var all []string
	for _, home := range p.Homes {
		all = append(append(all, secretsOf(home)...), npmrcsOf(home)...)
	}
	if os.Geteuid() == 0 {
		all = append(all, rootSecrets...)
		keys, _ := filepath.Glob("/etc/ssh/ssh_host_*_key") // the pattern is well-formed
		all = append(all, keys...)
	}
	return all
}

// secretsOf returns the private paths in a home: those of homeSecrets, and the credentials that profiles grant. A path
// inside of another one is left out, because a grant of that one includes it.
func secretsOf(home string) []string {
	all := slices.Clone(homeSecrets)
	for _, p := range profiles() {
		all = slices.Concat(all, p.Read, p.Write)
	}
	outer := slices.DeleteFunc(slices.Clone(all), func(path string) bool {
		return filepath.IsAbs(path) || slices.ContainsFunc(all, func(dir string) bool { return below(path, dir) })
	})
	return pathsBelow(home, outer)
}

// npmrcsOf returns the files with the settings of npm's prefixes in a home, which may hold tokens.
func npmrcsOf(home string) []string {
	inside := listings{FS: os.DirFS(home), known: map[string][]fs.DirEntry{}}
	var all []string
	for _, prefix := range npmPrefixes {
		all = append(all, inside.match(home, prefix+"/etc/npmrc")...)
	}
	return all
}

// locate returns a cover for each path by which the host's mounts show c, if a layer shows it or lies in it. Any other
// file is not asked for its attributes: the program behind a mount of FUSE may have ended, or not answer.
func (c cover) locate(mounts mountTable, shown layers) ([]cover, error) {
	fd, err := unix.Open(c.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	real, err := os.Readlink(fdPath(fd))
	if err != nil || real == "/" || !filepath.IsAbs(real) {
		return nil, err
	}
	paths := slices.DeleteFunc(mounts.aliases(real), func(path string) bool { return !shown.meet(path) })
	if len(paths) == 0 {
		return nil, nil
	}
	if c.dir, err = isDir(fd); err != nil {
		return nil, err
	}
	var all []cover
	for _, path := range paths {
		if sameFile(real, path) {
			all = append(all, cover{path: path, own: c.own, engine: c.engine, dir: c.dir})
		}
	}
	return all, nil
}

// meet reports whether a layer shows a path of the host, or lies in it.
func (all layers) meet(path string) bool {
	return all.shown(path) || slices.ContainsFunc(all, func(l layer) bool { return l.ofHost() && below(l.path, path) })
}

// sameFile reports whether two paths lead to one file: another mount may cover one of them.
func sameFile(a, b string) bool {
	var x, y unix.Stat_t
	return a == b || unix.Lstat(a, &x) == nil && unix.Lstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// absent reports whether a path does not exist or cannot be reached by this process. The server can do less, so it
// cannot reach it either.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ELOOP)
}

// dead reports whether a mount does not answer: the program behind it has ended, or serves another user. A socket in it
// cannot be reached either.
func dead(err error) bool {
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.EIO) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.EPERM)
}

// mountPoint is one mount of the host: the directory root of the file system of device is mounted at path.
type mountPoint struct{ device, root, path string }

type mountTable []mountPoint

// readMounts reads the mounts of this namespace (proc_pid_mountinfo(5)).
func readMounts() (mountTable, error) {
	b, err := readProc("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	var all mountTable
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			return nil, fmt.Errorf("reading the mounts: a line has %d fields", len(f))
		}
		all = append(all, mountPoint{device: f[2], root: unescape(f[3]), path: unescape(f[4])})
	}
	return all, nil
}

// unescape decodes a path of mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// aliases returns all paths by which the mounts show what is at path, path itself first.
func (t mountTable) aliases(path string) []string {
	all := []string{path}
	var in mountPoint
	for _, m := range t {
		if (path == m.path || below(path, m.path)) && len(m.path) >= len(in.path) {
			in = m
		}
	}
	if in.path == "" {
		return all
	}
	inside := filepath.Join(in.root, strings.TrimPrefix(path, in.path))
	for _, m := range t {
		if m.device != in.device || m.path == in.path || inside != m.root && !below(inside, m.root) {
			continue
		}
		all = append(all, filepath.Join(m.path, strings.TrimPrefix(inside, strings.TrimSuffix(m.root, "/"))))
	}
	return all
}
