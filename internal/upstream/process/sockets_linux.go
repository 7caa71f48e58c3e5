package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// engines lists sockets through which a program can act outside of its sandbox, and directories of such sockets. A
// star matches any name. A grant of a directory above one does not grant it, and neither does a read-only grant: a
// socket accepts connections on a read-only mount too.
//
// systemd, the session bus, keyrings and agents listen in the directory of a user's runtime files, so everything in it
// is listed.
var engines = []string{
	"/run/user", "/run/user/*/*", "/run/dbus", "/run/systemd/private", "/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio", "/run/buildkit",
	"/run/libvirt", "/run/WSL", "/run/snapd.socket", "/run/snapd-snap.socket", "/run/pcscd", "/run/screen", "/run/tmux",
	"/var/run/docker.sock", "/var/run/dbus", "/var/snap/lxd/common/lxd/unix.socket", "/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket",
	"/nix/var/nix/daemon-socket",
	"/tmp/tmux-*", "/tmp/screens", "/tmp/uscreens", "/tmp/zellij-*", "/tmp/ssh-*/agent.*", "/tmp/gpg-*/S.*", "/tmp/keyring-*", "/tmp/dbus-*",
	"/tmp/.X11-unix", "/tmp/.ICE-unix", "/tmp/vscode-*.sock", "/tmp/emacs*/server", "/tmp/nvim.*", "/tmp/podman-run-*", "/tmp/runtime-*",
}

// homeEngines lists such sockets in a home directory.
var homeEngines = []string{
	".docker/run", ".docker/desktop", ".colima/*.sock", ".colima/*/*.sock", ".lima/*/*.sock", ".lima/*/sock",
	".rd/*.sock", ".local/share/containers/podman/machine/*.sock", ".local/share/containers/podman/machine/*/*.sock",
	".1password/agent.sock", ".bitwarden-ssh-agent.sock", ".ssh/agent", ".gnupg/S.*", ".screen", ".config/Code/*.sock",
}

// engineSockets returns the paths of engines that exist now, and those without a star.
func engineSockets(homes []string) []string {
	host := listings{FS: os.DirFS("/"), known: map[string][]fs.DirEntry{}}
	var all []string
	for _, pattern := range engines {
		all = append(all, host.match("/", pattern)...)
	}
	for _, home := range homes {
		inside := listings{FS: os.DirFS(home), known: map[string][]fs.DirEntry{}}
		for _, pattern := range homeEngines {
			all = append(all, inside.match(home, pattern)...)
		}
	}
	return all
}

// listings reads each directory once.
type listings struct {
	fs.FS
	known map[string][]fs.DirEntry
}

func (l listings) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, known := l.known[name]
	if known {
		return entries, nil
	}
	entries, err := fs.ReadDir(l.FS, name)
	l.known[name] = entries
	return entries, err
}

// match returns the paths that match a pattern below root.
func (l listings) match(root, pattern string) []string {
	if !strings.Contains(pattern, "*") {
		return []string{filepath.Join(root, pattern)}
	}
	names, _ := fs.Glob(l, strings.TrimPrefix(pattern, "/")) // the patterns are well-formed
	return pathsBelow(root, names)
}

// sockets returns covers for the sockets that are granted by name in a directory of engines, and not by write.
func (all layers) sockets(c cover) []cover {
	var found []cover
	for _, l := range all {
		if c.engine && l.explicit() && l.kind != writeLayer && below(l.path, c.path) && isSocket(l.fd) {
			found = append(found, cover{path: l.path, engine: true})
		}
	}
	return found
}

func isSocket(fd int) bool { return hasType(fd, unix.S_IFSOCK) }

func isRegular(fd int) bool { return hasType(fd, unix.S_IFREG) }

func hasType(fd int, kind uint32) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == kind
}
