package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// bothWays returns a path and, if that may be opened, the path with all links followed.
func (v *view) bothWays(path string) []string {
	if !filepath.IsAbs(path) {
		return nil
	}
	all := []string{filepath.Clean(path)}
	held, err := v.open(path, false)
	if err != nil {
		v.stray(err)
		return all
	}
	_ = unix.Close(held.fd)
	if held.path != all[0] {
		all = append(all, held.path)
	}
	return all
}

// addSystem adds what every program needs of the host: programs and libraries, settings, and name resolution.
func (v *view) addSystem() {
	v.addPaths(systemLayer, false, systemDirs...)
	for _, path := range systemLinks {
		v.follow(path)
	}
	for _, home := range v.plan.Homes {
		for _, name := range toolchains {
			v.addPaths(systemLayer, false, filepath.Join(home, name))
		}
	}
	if v.plan.Network == NetworkNone || v.plan.Network == NetworkPorts && !slices.Contains(v.plan.Ports, dns) {
		return
	}
	v.addPaths(systemLayer, false, resolvers...)
	v.addPaths(systemLayer, false, "/etc/resolv.conf")
}

// addProgram adds the server's program with the files that it needs, and the directories of PATH.
func (v *view) addProgram(program string) {
	for _, path := range v.bothWays(program) {
		v.program = append(v.program, path)
		v.program = append(v.program, v.company(path)...)
		if interpreted(path) {
			v.addScript(path)
		}
	}
	v.addPaths(programLayer, false, v.program...)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if v.plan.narrow(dir) {
			v.addPaths(programLayer, false, dir)
		}
	}
}

// interpreted reports whether a file is a script that names its interpreter.
func interpreted(path string) bool {
	if !isScript(path) {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var start [2]byte
	_, err = f.Read(start[:])
	return err == nil && string(start[:]) == "#!"
}

// beside lists the names next to bin that belong to an installed program.
var beside = []string{"lib", "lib64", "libexec", "share", "include", "node_modules", "pyvenv.cfg"}

// company returns the paths that belong to a program: if it is in a bin directory, the other directories of its
// installation, otherwise its own directory unless that holds more than programs.
func (v *view) company(program string) []string {
	dir := filepath.Dir(program)
	if b := filepath.Base(dir); b != "bin" && b != ".bin" && b != "sbin" {
		if v.plan.narrow(dir) {
			return []string{dir}
		}
		return nil
	}
	all := []string{dir}
	for _, name := range beside {
		if path := filepath.Join(filepath.Dir(dir), name); v.plan.installation(filepath.Dir(dir)) && exists(path) {
			all = append(all, path)
		}
	}
	return all
}

// installation reports whether the directories of a root belong to one program: a home, its .local and the
// directories in broad hold files of others.
func (p *plan) installation(root string) bool {
	return filepath.Base(root) != ".local" && !slices.Contains(broad, root) &&
		!slices.ContainsFunc(p.Homes, func(home string) bool { return root == home || root == resolved(home) })
}

// broad lists directories with the files of many programs or users. They are granted only if they are named.
var broad = []string{"/", "/bin", "/boot", "/data", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
	"/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/run", "/var/tmp", "/workspace"}

// narrow reports whether a directory can be granted without having been named: it is a unit, and neither is nor contains
// a secret of a home.
func (p *plan) narrow(dir string) bool {
	return p.unit(dir) && !slices.ContainsFunc(p.Homes, func(home string) bool {
		return slices.ContainsFunc(secretsOf(home), func(path string) bool { return within(path, dir) })
	})
}

// unit reports whether the files of a directory can belong together: it is not in broad, and neither is nor contains a
// home or a hidden path.
func (p *plan) unit(dir string) bool {
	return filepath.IsAbs(dir) && !slices.Contains(broad, filepath.Clean(dir)) &&
		!slices.ContainsFunc(slices.Concat(p.Homes, p.Hide), func(path string) bool { return within(path, dir) })
}

// packaged reports whether the directory of a script's package is granted with the script. Covers hide the secrets in
// it, but not from a server that makes namespaces of its own.
func (p *plan) packaged(dir string) bool { return p.narrow(dir) || !p.Nested && p.unit(dir) }

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }

// addNamed adds the paths that arguments and variables name. Under contain a directory or file keeps the user's
// permissions, but a script is read-only and comes with its package. Under strict all of them are read-only.
func (v *view) addNamed() {
	for _, path := range v.plan.Named {
		v.asks.ask(path)
		v.addScript(path)
		v.addPaths(namedLayer, v.plan.Mode == Contain && !isScript(path), path)
	}
	for _, path := range v.plan.Listed {
		_ = v.addPath(namedLayer, false, path) // such lists also name paths that do not exist
	}
}

// scripts lists the extensions of files that an interpreter runs.
var scripts = []string{".js", ".mjs", ".cjs", ".ts", ".py", ".rb", ".sh", ".pl", ".php", ".jar", ".wasm"}

func isScript(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && (slices.Contains(scripts, filepath.Ext(path)) || info.Mode()&0o111 != 0)
}

// addScript adds the package that a script belongs to, and the module directories that its interpreter searches above
// it.
func (v *view) addScript(path string) {
	if !isScript(path) {
		return
	}
	for _, at := range v.bothWays(path) {
		v.addModules(at)
		if dir := packageOf(at); dir != "" && v.plan.packaged(dir) {
			v.addPaths(programLayer, false, dir)
		}
		if dir := filepath.Dir(at); v.plan.narrow(dir) { // the package itself may be a secret, and hidden
			v.addPaths(programLayer, false, dir)
		}
	}
}

func (v *view) addModules(script string) {
	for dir := filepath.Dir(script); dir != "/"; dir = filepath.Dir(dir) {
		if modules := filepath.Join(dir, "node_modules"); exists(modules) {
			v.addPaths(programLayer, false, modules)
		}
	}
}

// packageOf returns the directory of the package that a script belongs to; empty: none.
func packageOf(script string) string {
	for dir := filepath.Dir(script); dir != "/"; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "package.json")) || exists(filepath.Join(dir, "pyproject.toml")) {
			return dir
		}
	}
	return ""
}

// publicSettings returns npm's settings without credentials: it keeps only known harmless settings, and of these no
// value that may contain a credential. A missing file has none.
func publicSettings(path string) []byte {
	var out bytes.Buffer
	for lines := bufio.NewScanner(bytes.NewReader(fileOf(path, 64<<10))); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		if name = strings.TrimSpace(name); publicSetting(name) && !strings.Contains(value, "@") && !strings.Contains(value, "${") {
			out.WriteString(lines.Text() + "\n")
		}
	}
	return out.Bytes()
}

// fileOf returns the content of a regular file of at most most bytes; otherwise nil. A server that may write in the
// directory can make a pipe of that name, which must not be waited for.
func fileOf(path string, most int64) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil || int64(len(b)) > most {
		return nil
	}
	return b
}

// npmSettings lists the settings of npm that say where packages come from and how they are fetched.
var npmSettings = []string{"registry", "proxy", "https-proxy", "http-proxy", "noproxy", "cafile", "strict-ssl", "fetch-retries", "fetch-timeout",
	"maxsockets", "prefer-offline", "audit", "fund", "update-notifier", "engine-strict", "legacy-peer-deps", "omit", "script-shell", "nodedir"}

func publicSetting(name string) bool {
	return slices.Contains(npmSettings, name) || strings.HasPrefix(name, "@") && strings.HasSuffix(name, ":registry")
}

func newView(p *plan, program string, asks *patience) (*view, error) {
	v := &view{plan: p, home: homeOf(p), reach: newReach(p.writable(), asks), asks: asks, links: map[string]string{}}
	if err := v.grabDevices(); err != nil {
		return nil, err
	}
	v.addSystem()
	v.addProgram(program)
	v.addNamed()
	v.addPaths(readLayer, false, p.Read...)
	v.addPaths(writeLayer, true, p.Write...)
	v.addDir()
	if len(v.astray) > 0 {
		return nil, errors.Join(v.astray...)
	}
	if err := v.addHome(); err != nil {
		return nil, err
	}
	if len(p.Homes) > 0 {
		v.npmrc = filepath.Join(p.Homes[0], ".npmrc")
		asks.ask(v.npmrc)
		v.public = publicSettings(v.npmrc)
	}
	v.addPaths(ownLayer, false, p.Own...)
	v.order()
	covers, err := coversOf(p, v.layers, asks)
	if err != nil {
		return nil, err
	}
	v.covers = covers
	v.addCovers()
	return v, nil
}

// homeOf returns the path that the server takes for its home.
func homeOf(p *plan) string {
	if home := os.Getenv("HOME"); filepath.IsAbs(home) && filepath.Clean(home) != "/" {
		return filepath.Clean(home)
	}
	if len(p.Homes) > 0 && p.Homes[0] != "/" {
		return p.Homes[0]
	}
	return ""
}

// addDir adds the working directory. A fixed one was checked before, so the layer is the directory in which the stage
// was started.
func (v *view) addDir() {
	switch {
	case v.plan.Dir == "":
	case v.plan.Fixed:
		if held, err := grab("."); err == nil && held.path != "/" {
			v.layers = append(v.layers, layer{path: held.path, kind: writeLayer, write: true, fd: held.fd, dir: true})
		}
	default:
		v.addPaths(writeLayer, true, v.plan.Dir)
	}
}

// addHome adds the private home, and the directories for temporary files.
func (v *view) addHome() error {
	for _, path := range []string{"/tmp", "/var/tmp", "/dev/shm", tempDir()} {
		v.addScratch(path)
	}
	if v.home == "" || v.layers.shown(v.home) {
		return nil
	}
	if v.plan.Home == "" || v.plan.Mode == Strict {
		v.addScratch(v.home)
		return nil
	}
	held, err := grab(v.plan.Home)
	if err != nil {
		return fmt.Errorf("opening the server's private home %s: %w", v.plan.Home, err)
	}
	v.layers = append(v.layers, layer{path: v.home, kind: homeLayer, write: true, fd: held.fd, dir: true})
	return nil
}

func (v *view) addScratch(path string) {
	if path != "" && !v.layers.shown(path) {
		v.layers = append(v.layers, layer{path: path, kind: scratchLayer, write: true, fd: -1, dir: true})
	}
}

// tempDir returns the server's directory for temporary files, unless it is below one that the server gets anyway.
func tempDir() string {
	dir := filepath.Clean(os.Getenv("TMPDIR"))
	if !filepath.IsAbs(dir) || dir == "/" || below(dir, "/tmp") || below(dir, "/var/tmp") {
		return ""
	}
	return dir
}
