package daemon

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/internal/upstream/process/image"
)

// ownPaths returns the directories and files that no contained server sees, whatever the
// configuration says: with them a server could act as the daemon, or as another principal.
func ownPaths(o Options) []string {
	own := []string{o.StateDir, o.RuntimeDir, AuditDir(o.StateDir, o.Config), o.TokenFile, configDir()}
	var all []string
	for _, path := range own {
		if abs, err := filepath.Abs(path); path != "" && err == nil {
			all = append(all, abs)
		}
	}
	return all
}

// configDir returns the directory of the user's configuration; empty: the user has no home.
func configDir() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "doorward")
}

// sandboxes returns the runner that starts the servers of o.
func sandboxes(o Options, cgroups bool) (*process.Runner, error) {
	return process.NewRunner(process.Options{Image: image.Child(), Max: o.Config.Limits.Children, Hide: ownPaths(o), Private: absolute(o.StateDir), Cgroups: cgroups, Log: o.Log})
}

// sandboxOf returns the sandbox of a server of a configuration. home is the name of its
// private home.
func sandboxOf(c *config.Config, home string, s *config.Server) process.Sandbox {
	h := s.Doorward
	switch {
	case s.Kind != upstream.KindStdio:
		return process.Sandbox{}
	case h.Sandbox == process.Off, h.Sandbox == process.Contain && !process.CanContain:
		return process.Sandbox{Home: filepath.Join(filepath.Dir(home), "work")}
	}
	box := process.Sandbox{Mode: h.Sandbox, Network: string(h.Network), Nested: h.NestedSandbox, Home: home,
		Limits: process.Limits{Memory: int64(h.Limits.Memory), Processes: h.Limits.Processes, Files: h.Limits.Files}}
	user, _ := os.UserHomeDir()
	box.Grant(h.Read, h.Write, user)
	if box.Ports = h.Network.Ports(); box.Ports != nil {
		box.Network = process.NetworkPorts
	}
	for _, a := range s.Args {
		box.Named = append(box.Named, pathsIn(a.Reveal())...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		nameVariable(&box, name, s.Env[name].Reveal(), user)
	}
	box.Hide = hidden(c, box)
	return box
}

// nameVariable adds the paths in a variable. A list of paths is for look-ups and goes to
// Listed. TMPDIR and the user's own HOME are ignored: they do not name files that the server
// needs. Variables of sockets are ignored, because such a socket leads out of the sandbox.
func nameVariable(box *process.Sandbox, name, value, user string) {
	switch list := filepath.SplitList(value); {
	case name == "TMPDIR", name == "HOME" && filepath.Clean(value) == user, ofSocket(name):
	case name == "PATH", len(list) > 1 && !slices.ContainsFunc(list, notAbsolute):
		box.Listed = append(box.Listed, list...)
	default:
		box.Named = append(box.Named, pathsIn(value)...)
	}
}

// socketVariables lists the variables that name sockets of the user's session, of agents and
// of container engines, or directories of them. Only write and profiles grant these.
var socketVariables = []string{"XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "GNOME_KEYRING_CONTROL", "DOCKER_HOST", "CONTAINER_HOST",
	"CONTAINERD_ADDRESS", "BUILDKIT_HOST", "LIBVIRT_DEFAULT_URI", "DISPLAY", "WAYLAND_DISPLAY", "SESSION_MANAGER", "PULSE_SERVER", "PIPEWIRE_REMOTE",
	"NOTIFY_SOCKET", "TMUX", "TMUX_TMPDIR", "STY", "SCREENDIR", "NVIM", "KITTY_LISTEN_ON", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE"}

func ofSocket(variable string) bool {
	return slices.Contains(socketVariables, variable) || strings.HasPrefix(variable, "DBUS_")
}

func notAbsolute(path string) bool { return !filepath.IsAbs(path) }

// hidden returns the files of the configuration that are hidden from a server, even if it is
// granted a directory above them: all except the secret files that it names itself.
func hidden(c *config.Config, box process.Sandbox) []string {
	named := slices.Concat(box.Named, box.Read, box.Write)
	return slices.DeleteFunc(c.Files(), func(path string) bool {
		return slices.Contains(c.Secrets, path) && slices.Contains(named, path)
	})
}

// pathsIn returns the paths in a word of the configuration: the word itself, the value of an
// option, or the path of a file URL. The operator who writes a path there wants the server to
// find it.
func pathsIn(word string) []string {
	if _, value, ok := strings.Cut(word, "="); ok && !filepath.IsAbs(word) {
		word = value
	}
	for _, scheme := range []string{"file://", "sqlite:///"} {
		word = strings.TrimPrefix(word, scheme)
	}
	if !filepath.IsAbs(word) || filepath.Clean(word) == "/" {
		return nil
	}
	return []string{filepath.Clean(word)}
}

// written returns the paths that a contained server or launched agent of a configuration may
// write.
func written(c *config.Config) []string {
	var all []string
	for name, s := range c.Servers {
		if box := sandboxOf(c, serverHome(name), s); box.Mode != "" {
			all = append(all, s.Cwd)
			all = append(all, box.Writable()...)
		}
	}
	for _, l := range c.Agent.Launchers {
		if l.Sandbox != process.Off {
			all = slices.Concat(all, l.Write, l.Roots, []string{l.Cwd})
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkSandbox refuses a server that cannot be contained as configured, and logs the reason,
// because a missing server is noticed late.
func checkSandbox(deps upstream.Deps, def upstream.Definition) error {
	err := sandboxError(deps.Runner, def.Sandbox)
	if err != nil {
		deps.Log.Error("server refused", "server", def.Name, "reason", err)
	}
	return err
}

// sandboxError describes why a sandbox is impossible, and the remedy.
func sandboxError(r *process.Runner, box process.Sandbox) error {
	_, err := r.Check(box)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, process.ErrOwnGranted):
		return fmt.Errorf("%w; remove it from read, write, args and env of this server", err)
	}
	return fmt.Errorf("%w; enable it on this system, or set sandbox: off under doorward for this server, which then has all rights of your user", err)
}

// SandboxProblems returns a problem for each server that cannot be contained on this system
// as configured. It builds the sandboxes, and starts no server.
func SandboxProblems(o Options) []config.Problem {
	r, err := sandboxes(o, false)
	if err != nil {
		return []config.Problem{{Problem: err.Error()}}
	}
	var all []config.Problem
	for _, name := range slices.Sorted(maps.Keys(o.Config.Servers)) {
		s := o.Config.Servers[name]
		if s.Disabled || s.Refused != "" {
			continue
		}
		if err := sandboxError(r, sandboxOf(o.Config, serverHome(name), s)); err != nil {
			all = append(all, config.Problem{Line: s.Line, Key: "mcpServers." + name + ".doorward.sandbox", Problem: err.Error()})
		}
	}
	return all
}

// serverHome and launcherHome return the names of private homes.
func serverHome(name string) string   { return "servers/" + name + "/home" }
func launcherHome(name string) string { return "launchers/" + name + "/home" }

// containment describes how the servers of one configuration are contained.
type containment map[string]contained

type contained struct {
	server *config.Server
	box    process.Sandbox
}

func (set *serverSet) containment() *containment {
	all := make(containment, len(set.config.Servers))
	for name, s := range set.config.Servers {
		all[name] = contained{server: s, box: sandboxOf(set.config, serverHome(name), s)}
	}
	return &all
}

// absolute returns an absolute path, which does not depend on the working directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
