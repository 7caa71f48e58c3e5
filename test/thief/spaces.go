//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// preparation is done before the routes are tried: new namespaces, level by level, and then a change of the mounts.
type preparation struct {
	levels []uintptr
	change string
}

// preparations returns all combinations of namespaces and changes.
func preparations() []preparation {
	flags := []uintptr{
		unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		unix.CLONE_NEWNS,
	}
	all := []preparation{}
	for change := range changes {
		all = append(all, preparation{change: change})
		for _, f := range flags {
			all = append(all, preparation{levels: []uintptr{f}, change: change})
		}
		all = append(all, preparation{levels: []uintptr{flags[0], flags[0]}, change: change},
			preparation{levels: []uintptr{flags[0], flags[1], flags[0]}, change: change})
	}
	return all
}

// merge tries all routes in a child process after the preparation, and adds its results.
func (l *loot) merge(p preparation, paths []string) {
	l.Tried++
	plan, _ := json.Marshal([]any{p.levels, p.change, paths})
	out, err := descend(string(plan), p.levels)
	if err != nil {
		return
	}
	var found loot
	if json.Unmarshal(out, &found) == nil {
		l.Tried += found.Tried
		for _, route := range found.Found {
			l.Found = append(l.Found, fmt.Sprintf("%x %s: %s", p.levels, p.change, route))
		}
	}
}

// descend starts this program again in the new namespaces of the first level.
func descend(plan string, levels []uintptr) ([]byte, error) {
	c := exec.Command("/proc/self/exe", "inside", plan)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if len(levels) > 0 {
		c.SysProcAttr.Cloneflags = levels[0]
	}
	if len(levels) > 0 && levels[0]&unix.CLONE_NEWUSER != 0 {
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	c.WaitDelay = 5 * time.Second
	timer := time.AfterFunc(30*time.Second, func() {
		if c.Process != nil {
			_ = c.Process.Kill()
		}
	})
	defer timer.Stop()
	return c.Output()
}

// inside starts the next level, or on the last one changes the mounts and tries the routes.
func inside(args []string) {
	var plan []json.RawMessage
	var p preparation
	var paths []string
	if json.Unmarshal([]byte(args[0]), &plan) != nil || len(plan) != 3 ||
		errors.Join(json.Unmarshal(plan[0], &p.levels), json.Unmarshal(plan[1], &p.change), json.Unmarshal(plan[2], &paths)) != nil {
		os.Exit(2)
	}
	if len(p.levels) > 1 {
		next, _ := json.Marshal([]any{p.levels[1:], p.change, paths})
		out, err := descend(string(next), p.levels[1:])
		if err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.Write(out)
		return
	}
	found := &loot{}
	for _, prefix := range changes[p.change](paths) {
		for _, path := range paths {
			for _, at := range below(prefix, path) {
				found.try(prefix+" to "+path, readFile(at))
			}
		}
	}
	found.here("", paths)
	b, _ := json.Marshal(found)
	_, _ = os.Stdout.Write(b)
}

// below returns the places where a path may appear below a prefix: the whole path, or the part of it that is left
// when a directory above it is mounted there.
func below(prefix, path string) []string {
	all := []string{prefix + path}
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		all = append(all, prefix+strings.TrimPrefix(path, dir))
	}
	return all
}

// changes are changes of the mounts, by name. Each returns the prefixes at which to look afterwards.
var changes = map[string]func(paths []string) []string{
	"nothing":        func([]string) []string { return nil },
	"unmounts":       unmounts,
	"second mounts":  secondMounts,
	"trees":          trees,
	"another root":   anotherRoot,
	"new systems":    newSystems,
	"other spaces":   otherSpaces,
	"no root at all": leaveRoot,
}

func mountPoints() []string {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	var all []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			all = append(all, f[4])
		}
	}
	return all
}

// unmounts tries to make every mount writable and to unmount it, the last one first.
func unmounts([]string) []string {
	points := mountPoints()
	for i := len(points) - 1; i >= 0; i-- {
		for _, flags := range []uintptr{unix.MS_REMOUNT | unix.MS_BIND, unix.MS_REMOUNT} {
			_ = unix.Mount("", points[i], "", flags, "")
		}
		_ = unix.MountSetattr(unix.AT_FDCWD, points[i], 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		for _, flags := range []int{unix.MNT_DETACH, 0, unix.MNT_FORCE, unix.UMOUNT_NOFOLLOW} {
			_ = unix.Unmount(points[i], flags)
		}
	}
	return nil
}

// secondMounts binds the directories above each canary, and some harmless ones, to other places: alone, without the
// mounts on them, and recursively. Then it moves the directories above the canaries into others, of which one is
// mounted twice.
func secondMounts(paths []string) []string {
	base := own()
	var all []string
	for i, dir := range append(above(paths), "/", "/tmp", ".", "/usr", "/etc") {
		for j, flags := range []uintptr{unix.MS_BIND, unix.MS_BIND | unix.MS_REC} {
			at := fmt.Sprintf("%s/%d-%d", base, i, j)
			_ = os.Mkdir(at, 0o700)
			if unix.Mount(dir, at, "", flags, "") == nil {
				all = append(all, at)
			}
		}
	}
	innocent, second := base+"/innocent", base+"/second"
	_, _ = os.Mkdir(innocent, 0o700), os.Mkdir(second, 0o700)
	if unix.Mount(innocent, second, "", unix.MS_BIND, "") != nil {
		return all
	}
	for i, dir := range above(paths) {
		for _, to := range append(siblings(dir), innocent) {
			at := fmt.Sprintf("%s/moved%d", to, i)
			if unix.Rename(dir, at) == nil {
				all = append(all, at, strings.Replace(at, innocent, second, 1))
			}
		}
	}
	return all
}

// siblings returns the directories beside dir: targets for a move within one file system.
func siblings(dir string) []string {
	var all []string
	entries, _ := os.ReadDir(filepath.Dir(dir))
	for _, e := range entries {
		if e.IsDir() && e.Name() != filepath.Base(dir) {
			all = append(all, filepath.Join(filepath.Dir(dir), e.Name()))
		}
	}
	return all
}

// above returns the directories above all canaries, without duplicates.
func above(paths []string) []string {
	seen := map[string]bool{}
	var all []string
	for _, path := range paths {
		for _, dir := range parents(path) {
			if !seen[dir] {
				seen[dir] = true
				all = append(all, dir)
			}
		}
	}
	return all
}

// trees clones parts of the mount tree without attaching them anywhere.
func trees(paths []string) []string {
	var all []string
	for _, dir := range append(above(paths), "/", "/tmp", ".") {
		for _, flags := range []uint{unix.OPEN_TREE_CLONE, unix.OPEN_TREE_CLONE | unix.AT_RECURSIVE} {
			if fd, err := unix.OpenTree(unix.AT_FDCWD, dir, flags); err == nil {
				all = append(all, fmt.Sprintf("/proc/self/fd/%d", fd))
			}
		}
	}
	return all
}

// anotherRoot changes the root with pivot_root and detaches the old one while it is the working directory.
func anotherRoot([]string) []string {
	base := own()
	if unix.Mount("tmpfs", base, "tmpfs", 0, "") != nil {
		return nil
	}
	_ = os.Mkdir(base+"/old", 0o700)
	held, _ := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if unix.PivotRoot(base, base+"/old") != nil {
		return nil
	}
	all := []string{"/old", fmt.Sprintf("/proc/self/fd/%d", held), fmt.Sprintf("/old/proc/self/fd/%d", held)}
	_ = unix.Unmount("/old/tmp", unix.MNT_DETACH)
	_ = unix.Fchdir(held)
	_ = unix.Unmount("/old", unix.MNT_DETACH)
	return append(all, ".", "./..", "/..")
}

// newSystems mounts file systems that may show others.
func newSystems([]string) []string {
	base := own()
	var all []string
	for i, m := range []struct{ fstype, options string }{{"proc", ""}, {"sysfs", ""}, {"devtmpfs", ""}, {"cgroup2", ""}, {"tmpfs", ""},
		{"overlay", "userxattr,lowerdir=/:/usr"}, {"overlay", "lowerdir=/tmp:/"}, {"ext4", ""}, {"debugfs", ""}, {"tracefs", ""}, {"securityfs", ""}} {
		at := fmt.Sprintf("%s/new%d", base, i)
		_ = os.Mkdir(at, 0o700)
		source := m.fstype
		if m.fstype == "ext4" {
			source = "/dev/vda"
		}
		if unix.Mount(source, at, m.fstype, 0, m.options) == nil {
			all = append(all, at, at+"/1/root", at+"/self/root")
		}
	}
	if fd, err := unix.Fsopen("tmpfs", 0); err == nil {
		_ = unix.FsconfigCreate(fd)
		if m, err := unix.Fsmount(fd, 0, 0); err == nil {
			all = append(all, fmt.Sprintf("/proc/self/fd/%d", m))
		}
	}
	return all
}

// otherSpaces tries to enter the namespaces of every process in reach.
func otherSpaces([]string) []string {
	names, _ := filepath.Glob("/proc/[0-9]*/ns/*")
	for _, name := range names {
		if fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Setns(fd, 0)
			_ = unix.Close(fd)
		}
	}
	return []string{""}
}

// leaveRoot changes the root to a directory below the working directory, and then climbs with "..".
func leaveRoot([]string) []string {
	base := own()
	held, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil || unix.Chroot(base) != nil {
		return nil
	}
	_ = unix.Fchdir(held)
	for range 64 {
		_ = unix.Chdir("..")
	}
	return []string{".", strings.Repeat("../", 40) + "."}
}
