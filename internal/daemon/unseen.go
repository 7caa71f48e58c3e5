package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// unseen collects the paths on contained servers' standard error that exist on the host and
// are not granted. A server without its files may answer wrongly instead of failing, so the
// operator is told. The output is a claim of the server and grants nothing.
type unseen struct {
	never []string // Doorward's own paths, which no key grants

	lookups process.Lookups // by server
	mu      sync.Mutex
	paths   map[string][]string // by server
}

// mostUnseen is the largest number of paths kept for one server.
const mostUnseen = 16

// pathWord is an absolute path in a line of text.
var pathWord = regexp.MustCompile(`/[^\s'"` + "`" + `:,;()<>\[\]{}|]{1,255}`)

// quotedPath is an absolute path between quotation marks, which may contain spaces.
var quotedPath = regexp.MustCompile(`'(/[^']{1,255})'|"(/[^"]{1,255})"|` + "`(/[^`]{1,255})`")

// pathsOf returns the absolute paths in a line, those between quotation marks first.
func pathsOf(line string) []string {
	var paths []string
	for _, groups := range quotedPath.FindAllStringSubmatch(line, 8) {
		paths = append(paths, strings.Join(groups[1:], ""))
	}
	return append(paths, pathWord.FindAllString(line, 8)...)
}

// ordinary is the list of directories that every server sees, from the host or as its own.
var ordinary = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/proc", "/sys", "/dev", "/nix", "/gnu"}

// roots is the list of directories that a server has of its own, or that are too general to
// be a missing path.
var roots = []string{"/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/run", "/mnt", "/srv"}

// npmRefusal is npm's error for a package that the registry gives only with a token.
var npmRefusal = regexp.MustCompile(`^npm (error|ERR!) code (E401|E403|E404|ENEEDAUTH)$`)

// pathPatience bounds how long the file systems of a server's paths may take to answer.
const pathPatience = 2 * time.Second

// note collects such paths from a line.
func (u *unseen) note(server, line string) {
	if npmRefusal.MatchString(line) {
		u.lookups.Do(server, pathPatience, func() { u.noteTokens(server) })
	}
	var paths []string
	for _, path := range pathsOf(line) {
		path = filepath.Clean(path)
		if !within(ordinary, path) && !slices.Contains(roots, path) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return
	}
	u.lookups.Do(server, pathPatience, func() {
		var there []string
		for _, path := range paths {
			if _, err := os.Lstat(path); err == nil && !beginsOne(there, path) {
				there = append(there, path)
				u.add(server, path)
			}
		}
	})
}

// beginsOne reports whether a path is the part of one of paths before a space in it.
func beginsOne(paths []string, path string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, path+" ") })
}

// noteTokens collects the user's settings of npm if they have credentials, which a server sees
// only if they are granted.
func (u *unseen) noteTokens(server string) {
	home, _ := os.UserHomeDir()
	path := filepath.Join(home, ".npmrc")
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return
	}
	if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("_auth")) {
		u.add(server, path)
	}
}

func (u *unseen) add(server, path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.paths == nil {
		u.paths = map[string][]string{}
	}
	if all := u.paths[server]; len(all) < mostUnseen && !slices.Contains(all, path) {
		u.paths[server] = append(all, path)
	}
}

// of returns, for each path that a server mentioned or that its kind is known to need, the
// key that grants it.
func (u *unseen) of(name string, s *config.Server, box process.Sandbox) []string {
	if box.Mode == "" {
		return nil
	}
	var hints []string
	if !u.lookups.Do(name, pathPatience, func() { hints = u.hints(name, s, box) }) {
		return []string{"its paths are not known: the file system of one of them does not answer; mount it again"}
	}
	return hints
}

// hints is of, without a bound.
func (u *unseen) hints(name string, s *config.Server, box process.Sandbox) []string {
	u.mu.Lock()
	paths := slices.Clone(u.paths[name])
	u.mu.Unlock()
	home, _ := os.UserHomeDir()
	for _, path := range known(s, home) {
		if _, err := os.Lstat(path); err == nil && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	granted := slices.Concat(box.Read, box.Write, box.Named, box.Listed, []string{s.Cwd, s.Path})
	hints := slices.Concat(socketHints(s, box, home), namedSockets(box, home), newFiles(box, granted, u.never, home), browserHint(s, box, home))
	for _, path := range paths {
		if path == home || within(granted, path) || within(u.never, path) || within(box.Hide, path) {
			continue
		}
		hints = append(hints, path+": "+remedy(path, home))
	}
	return hints
}

// socketHints returns, for each path in a variable of sockets, the key that grants it.
func socketHints(s *config.Server, box process.Sandbox, home string) []string {
	var hints []string
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if !ofSocket(name) {
			continue
		}
		for _, path := range pathWord.FindAllString(s.Env[name].Reveal(), 8) {
			path = filepath.Clean(path)
			if _, err := os.Stat(path); err == nil && !socketGranted(path, home, box) {
				hints = append(hints, path+": "+name+" does not grant it; "+socketRemedy(path))
			}
		}
	}
	return hints
}

// namedSockets returns, for each socket that is granted in a way that does not grant sockets of
// its kind, the key that does.
func namedSockets(box process.Sandbox, home string) []string {
	var hints []string
	for _, path := range slices.Concat(box.Named, box.Listed, box.Read) {
		if isSocket(path) && engineOf(path, home) != "" && !socketGranted(path, home, box) {
			hints = append(hints, path+": naming it does not grant it; "+socketRemedy(path))
		}
	}
	return hints
}

// engineOf returns what process.EngineOf does for a path or for what it leads to.
func engineOf(path, home string) string {
	if engine := process.EngineOf(path, home); engine != "" {
		return engine
	}
	return process.EngineOf(target(path), home)
}

func target(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// socketGranted reports whether write grants a socket, or a socket in a directory. An entry above
// a socket of engines grants it only from the listed directory on.
func socketGranted(path, home string, box process.Sandbox) bool {
	path, socket := target(path), isSocket(path)
	engine := process.EngineOf(path, target(home))
	return slices.ContainsFunc(box.Write, func(entry string) bool {
		entry = target(entry)
		if !socket {
			return within([]string{path}, entry)
		}
		return within([]string{entry}, path) && (engine == "" || within([]string{engine}, entry))
	})
}

// socketRemedy returns the configuration key that grants a socket, or the sockets in a directory.
func socketRemedy(path string) string {
	if !isSocket(path) {
		path += "/…"
	}
	return fmt.Sprintf("write: [%s] grants a socket, and the server can then act through the program behind it, outside of its sandbox", path)
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeSocket != 0
}

// within reports whether a path is one of dirs or below one.
func within(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return dir != "" && (path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/"))
	})
}

// remedy returns the configuration key that grants a path.
func remedy(path, home string) string {
	for _, name := range process.ProfileNames() {
		var box process.Sandbox
		box.Grant([]string{name}, nil, home)
		if within(slices.Concat(box.Read, box.Write), path) {
			return fmt.Sprintf("read: [%s] grants it", name)
		}
	}
	if isSocket(path) {
		return socketRemedy(path)
	}
	return fmt.Sprintf("read: [%s] grants it", path)
}

// kinds maps words of a server's command line to the profile of the tools that they name.
var kinds = map[string]string{"kubernetes": "kubernetes", "kubectl": "kubernetes", "k8s": "kubernetes", "helm": "kubernetes", "aws": "aws",
	"azure": "azure", "gcloud": "gcloud", "google-cloud": "gcloud", "mcp-remote": "mcp-remote", "docker": "docker", "podman": "podman",
	"playwright": "browsers", "puppeteer": "browsers", "chrome-devtools": "browsers"}

// known returns the paths that a server of this kind usually reads.
func known(s *config.Server, home string) []string {
	words := []string{filepath.Base(s.Command)}
	for _, a := range s.Args {
		words = append(words, strings.FieldsFunc(a.Reveal(), func(r rune) bool { return strings.ContainsRune("@/ _", r) })...)
	}
	var paths []string
	for _, word := range words {
		for part, profile := range kinds {
			if !strings.Contains("-"+word+"-", "-"+part+"-") {
				continue
			}
			var box process.Sandbox
			box.Grant([]string{profile}, nil, home)
			paths = append(paths, slices.Concat(box.Read, box.Write)...)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// code are the ends of the names of programs, which a server runs and does not make.
var code = []string{".js", ".mjs", ".cjs", ".ts", ".mts", ".py", ".rb", ".sh", ".jar", ".dll", ".exe"}

// newFiles returns, for each path that a server is to make in a directory that it does not see,
// the key that grants this directory. In the home it makes the file in its own. Of a missing
// program it only says that it is missing.
func newFiles(box process.Sandbox, granted, never []string, home string) []string {
	var hints []string
	for _, path := range box.Named {
		dir := filepath.Dir(path)
		if dir == home || slices.Contains(roots, dir) || within(slices.Concat(ordinary, granted, never, box.Hide), dir) {
			continue
		}
		_, err := os.Lstat(path)
		switch missing := errors.Is(err, fs.ErrNotExist); {
		case missing && slices.Contains(code, filepath.Ext(path)):
			hints = append(hints, path+": it does not exist")
		case missing && isDir(dir):
			hints = append(hints, path+": it does not exist; write: ["+dir+"] lets the server make it")
		}
	}
	return hints
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// browserHint returns the key that lets the browser of a server build its own sandbox, nothing
// for a server that starts none, or starts it without one.
func browserHint(s *config.Server, box process.Sandbox, home string) []string {
	var browsers process.Sandbox
	browsers.Grant([]string{"browsers"}, nil, home)
	starts := slices.ContainsFunc(known(s, home), func(path string) bool { return slices.Contains(browsers.Read, path) })
	if !starts || box.Nested || box.Mode != process.Contain || slices.ContainsFunc(s.Args, func(a secret.Value) bool { return strings.Contains(a.Reveal(), "no-sandbox") }) {
		return nil
	}
	return []string{"namespaces for the sandbox of its browser: read: [browsers] grants them; or start the browser with --no-sandbox"}
}
