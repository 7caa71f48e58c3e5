package process

import (
	"path/filepath"
	"slices"
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

// EngineOf returns the listed socket or directory of engines that a path is or lies in; empty: none. home is the user's.
func EngineOf(path, home string) string {
	all := slices.Concat(engines, pathsBelow(home, homeEngines))
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		if slices.ContainsFunc(all, func(pattern string) bool { ok, _ := filepath.Match(pattern, at); return ok }) {
			return at
		}
	}
	return ""
}
