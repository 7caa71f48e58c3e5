package process

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// commonDevices are the devices of the host that the server gets. Terminals and shared memory are mounted anew.
var commonDevices = []string{null, "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// deviceLinks are the links in /dev.
var deviceLinks = map[string]string{"/dev/ptmx": "pts/ptmx", "/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
	"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"}

// mountSystem mounts /proc, /sys and /dev in the new root.
func (v *view) mountSystem(r *root) error {
	if err := v.mountProc(r); err != nil {
		return err
	}
	if fd, err := r.open("/run", true, true); err == nil {
		_ = unix.Close(fd)
	}
	if err := r.share("/sys"); err != nil && !absent(err) {
		return err
	}
	v.note("read-only /sys", Enforced, "")
	return v.mountDevices(r)
}

// mountProc mounts a /proc that shows the server's own processes. The kernel refuses that if parts of the host's
// /proc are masked, as in a container. Then the host's /proc is mounted: there a process in another user namespace
// may read no process.
func (v *view) mountProc(r *root) error {
	err := r.mount("proc", "/proc", unix.MS_NODEV|unix.MS_NOEXEC, "", true, false)
	if err == nil {
		v.note("own /proc", Enforced, "")
		return nil
	}
	if !v.plan.UserNS {
		return fmt.Errorf("%w; without a user namespace the host's /proc cannot be shown instead", err)
	}
	v.note("own /proc", Partial, "the host's processes stay listed: "+err.Error())
	held, err := grab("/proc")
	if err != nil {
		return err
	}
	defer unix.Close(held.fd)
	return r.bind(held.fd, "/proc", true, true, true)
}

// share mounts a directory of the host read-only.
func (r *root) share(path string) error {
	held, err := grab(path)
	if err != nil {
		return err
	}
	defer unix.Close(held.fd)
	return r.bind(held.fd, path, true, true, false)
}

// grabDevices opens the devices before the new root hides them. The server does not get devices that the host lacks;
// only the null device is required.
func (v *view) grabDevices() error {
	for _, path := range commonDevices {
		held, err := grab(path)
		if err != nil && path == null {
			return fmt.Errorf("opening %s: %w", path, err)
		}
		if err == nil {
			held.path = path
			v.devices = append(v.devices, held)
		}
	}
	return nil
}

func (v *view) mountDevices(r *root) error {
	if err := r.mount("tmpfs", "/dev", unix.MS_NOEXEC, "mode=0755,size=64k", true, true); err != nil {
		return err
	}
	for _, held := range v.devices {
		// Read-only, because it is the host's own device: writing to it still works, changing its permissions does
		// not.
		if err := r.bind(held.fd, held.path, false, true, false); err != nil {
			return err
		}
	}
	// If it cannot be mounted, the server has no terminals.
	_ = r.mount("devpts", "/dev/pts", unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620", true, false)
	var failed []error
	for path, target := range deviceLinks {
		failed = append(failed, r.link(path, target))
	}
	return errors.Join(failed...)
}

// readable returns the paths that strict grants to read, without those of the plan.
func (v *view) readable() []string {
	all := append(slices.Clone(v.program), "/sys")
	for _, l := range v.layers {
		if l.ofHost() && !l.write {
			all = append(all, l.path)
		}
	}
	return all
}

// summary lists for the owner what the server sees beside the system's own directories.
func (v *view) summary() string {
	var reads, writes []string
	for _, l := range v.layers {
		switch {
		case !l.explicit():
		case l.write:
			writes = append(writes, l.path)
		default:
			reads = append(reads, l.path)
		}
	}
	var parts []string
	for _, p := range []struct {
		what  string
		paths []string
	}{{"reads", reads}, {"writes", writes}, {"hides", v.hidden}, {"not there", v.absent},
		{"refused, since a link in a directory that servers write leads elsewhere:", v.refused}} {
		if len(p.paths) > 0 {
			parts = append(parts, p.what+" "+strings.Join(p.paths, " "))
		}
	}
	return strings.Join(parts, "; ")
}
