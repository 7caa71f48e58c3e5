package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// bothWays is a path and where it leads, if that may be opened.
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

// addSystem adds what every program needs of the host: its programs and libraries, its settings, and the way to look names up.
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

// addProgram adds the server's program and what it needs with itself, and the directories of PATH.
func (v *view) addProgram(program string) {
	for _, path := range v.bothWays(program) {
		v.program = append(v.program, path)
		v.program = append(v.program, v.company(path)...)
	}
	v.addPaths(programLayer, false, v.program...)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if v.narrow(dir) {
			v.addPaths(programLayer, false, dir)
		}
	}
}

// beside are the directories next to bin that belong to an installed program.
var beside = []string{"lib", "lib64", "libexec", "share", "include", "node_modules", "pyvenv.cfg"}

// company is what lies beside a program and belongs to it: the other directories of its installation where it is in bin, and
// else its own directory, unless that holds more than programs.
func (v *view) company(program string) []string {
	dir := filepath.Dir(program)
	if b := filepath.Base(dir); b == "bin" || b == ".bin" || b == "sbin" {
		all := []string{dir}
		for _, name := range beside {
			if path := filepath.Join(filepath.Dir(dir), name); filepath.Base(filepath.Dir(dir)) != ".local" && exists(path) {
				all = append(all, path)
			}
		}
		return all
	}
	if v.narrow(dir) {
		return []string{dir}
	}
	return nil
}

// broad are directories that hold what belongs to many, and are granted only where they are named.
var broad = []string{"/", "/bin", "/boot", "/data", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
	"/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/run", "/var/tmp", "/workspace"}

// narrow tells whether a directory can be granted without having been named: it is no home, holds none, and is none of what
// many share.
func (v *view) narrow(dir string) bool {
	if !filepath.IsAbs(dir) || slices.Contains(broad, filepath.Clean(dir)) {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(v.plan.Homes, v.plan.Hide), func(path string) bool {
		return path == dir || below(path, dir)
	})
}

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }

// addNamed adds what arguments and variables name. Under contain a directory or file is as writable as it is to the user; a
// script is not, and has what it is run with. Under strict all of it is read-only.
func (v *view) addNamed() {
	for _, path := range v.plan.Named {
		v.addScript(path)
		v.addPaths(namedLayer, v.plan.Mode == Contain && !isScript(path), path)
	}
	for _, path := range v.plan.Listed {
		_ = v.addPath(namedLayer, false, path) // such lists name what is not there, too
	}
}

// scripts are the endings of files that an interpreter runs.
var scripts = []string{".js", ".mjs", ".cjs", ".ts", ".py", ".rb", ".sh", ".pl", ".php", ".jar", ".wasm"}

func isScript(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && (slices.Contains(scripts, filepath.Ext(path)) || info.Mode()&0o111 != 0)
}

// addScript adds the package that a script belongs to, and the modules that its interpreter looks for in the directories
// above.
func (v *view) addScript(path string) {
	if !isScript(path) {
		return
	}
	for _, at := range v.bothWays(path) {
		v.addModules(at)
		if dir := packageOf(at); dir != "" && v.narrow(dir) {
			v.addPaths(programLayer, false, dir)
		} else if dir := filepath.Dir(at); v.narrow(dir) {
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

// packageOf is the directory of the package that a script belongs to; empty for none.
func packageOf(script string) string {
	for dir := filepath.Dir(script); dir != "/"; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "package.json")) || exists(filepath.Join(dir, "pyproject.toml")) {
			return dir
		}
	}
	return ""
}

// publicSettings reads the settings of npm, and leaves out what signs in: every line with a credential, and every address
// with one in it. A file that is not there has none.
func publicSettings(path string) []byte {
	const most = 64 << 10
	b, err := os.ReadFile(path)
	if err != nil || len(b) > most {
		return nil
	}
	var out bytes.Buffer
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		if name = strings.TrimSpace(name); publicSetting(name) && !strings.Contains(value, "@") && !strings.Contains(value, "${") {
			out.WriteString(lines.Text() + "\n")
		}
	}
	return out.Bytes()
}

// npmSettings are the settings of npm that say where packages come from and how to get there.
var npmSettings = []string{"registry", "proxy", "https-proxy", "http-proxy", "noproxy", "cafile", "strict-ssl", "fetch-retries", "fetch-timeout",
	"maxsockets", "prefer-offline", "audit", "fund", "update-notifier", "engine-strict", "legacy-peer-deps", "omit", "script-shell", "nodedir"}

func publicSetting(name string) bool {
	return slices.Contains(npmSettings, name) || strings.HasPrefix(name, "@") && strings.HasSuffix(name, ":registry")
}

func newView(p *plan, program string) (*view, error) {
	v := &view{plan: p, home: homeOf(p), reach: newReach(p.writable()), links: map[string]string{}}
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
	v.addPaths(ownLayer, false, p.Own...)
	v.order()
	covers, err := coversOf(p)
	if err != nil {
		return nil, err
	}
	v.covers = covers
	v.addCovers()
	return v, nil
}

// homeOf is where the server takes its home to be.
func homeOf(p *plan) string {
	if home := os.Getenv("HOME"); filepath.IsAbs(home) && filepath.Clean(home) != "/" {
		return filepath.Clean(home)
	}
	if len(p.Homes) > 0 && p.Homes[0] != "/" {
		return p.Homes[0]
	}
	return ""
}

// addDir adds the working directory, by what the stage was started in where that was looked at before.
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
	if len(v.plan.Homes) > 0 {
		v.npmrc = publicSettings(filepath.Join(v.plan.Homes[0], ".npmrc"))
	}
	return nil
}

func (v *view) addScratch(path string) {
	if path != "" && !v.layers.shown(path) {
		v.layers = append(v.layers, layer{path: path, kind: scratchLayer, write: true, fd: -1, dir: true})
	}
}

// tempDir is where the server puts temporary files, unless that is below a directory of its own anyway.
func tempDir() string {
	dir := filepath.Clean(os.Getenv("TMPDIR"))
	if !filepath.IsAbs(dir) || dir == "/" || below(dir, "/tmp") || below(dir, "/var/tmp") {
		return ""
	}
	return dir
}
