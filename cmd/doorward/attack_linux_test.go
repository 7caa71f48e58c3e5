package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSandboxHoldsAgainstSearch runs test/thief as a server of the real daemon, as root and as an ordinary user. Whatever it
// tries, it reads no canary and changes none, nothing appears beside them, and the daemon's policy stays as it is.
func TestSandboxHoldsAgainstSearch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, entry string }{
		{"contain", `{}`},
		{"a directory is granted", `{write: [BASE/work]}`},
		{"no network", `{network: none}`},
		{"nested", `{nested_sandbox: true}`},
		{"nested, a directory is granted", `{nested_sandbox: true, read: [BASE/work]}`},
		{"home is granted", `{write: [HOME]}`},
		{"home is granted to read", `{read: [HOME]}`},
		{"everything is granted", `{write: [BASE]}`},
		{"strict", `{sandbox: strict}`},
	} {
		for _, uid := range users() {
			if uid == 0 && strings.HasPrefix(c.name, "nested") {
				continue // refused, see TestNestedNamespaces
			}
			t.Run(fmt.Sprintf("%s as %s", c.name, map[bool]string{true: "root", false: "user"}[uid == 0]), func(t *testing.T) {
				t.Parallel()
				newWorld(t, uid, c.entry).attack()
			})
		}
	}
}

// users returns the users that a test can run as: root and an unprivileged one, or the
// current user.
func users() []int {
	if os.Getuid() != 0 {
		return []int{os.Getuid()}
	}
	return []int{0, 400000 + rand.IntN(1<<20)}
}

// world is an installation with canaries in it.
type world struct {
	t          *testing.T
	uid        int
	base, home string
	log        lockedBuffer
	canaries   []string // paths that hold the word CANARY
	frozen     []string // paths that only must not change
}

// lockedBuffer is what a process writes, readable while it runs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newWorld(t *testing.T, uid int, entry string) *world {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "doorward-attack")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeLocked(t, base) })
	w := &world{t: t, uid: uid, base: base, home: base + "/home"}
	w.install()
	granted := strings.Contains(entry, "write: [HOME]") || strings.Contains(entry, "write: [BASE]")
	config := w.home + "/.config/doorward/"
	w.canary(config+"doorward.yaml", w.configuration(entry))
	w.canary(config+"policy.cedar", "// CANARY\n@id(\"canary\") forbid (principal, action, resource == Server::\"other\") unless { true };\n")
	w.canary(config+"policy.tests.yaml", "# CANARY\n[]\n")
	w.canary(base+"/vault/other.key", "CANARY-file-secret")
	w.canary(w.home+"/.ssh/id", "CANARY-ssh")
	w.canary(w.home+"/.aws/credentials", "CANARY-aws")
	for _, name := range []string{"Documents/letter", ".npm/_npx/abc/index.js", ".cache/uv/x", "other/data"} {
		if path := w.home + "/" + name; !strings.Contains(entry, "[HOME]") && !strings.Contains(entry, "[BASE]") {
			w.canary(path, "CANARY-"+name)
		}
	}
	for _, name := range []string{".bashrc", ".profile", ".gitconfig", ".config/autostart/x.desktop", ".config/systemd/user/x.service", ".local/bin/tool"} {
		if path := w.home + "/" + name; !granted {
			w.write(path, "start-up file")
			w.frozen = append(w.frozen, path)
		}
	}
	w.write(base+"/work/file", "work")
	w.own()
	return w
}

// configuration is the file of the world. other is a server with a secret, a home and data of its own.
func (w *world) configuration(entry string) string {
	text := `# CANARY
listen: {http: []}
policy: policy.cedar
mcpServers:
  other: {command: BASE/bin/thief, env: {SECRET: "CANARY-other-secret", KEY: "${file:BASE/vault/other.key}"}}
  thief: {command: BASE/bin/thief, doorward: ENTRY}
`
	return strings.NewReplacer("ENTRY", strings.NewReplacer("BASE", w.base, "HOME", w.home).Replace(entry), "BASE", w.base).Replace(text)
}

// removeLocked removes a tree in which the thief took rights from directories.
func removeLocked(t *testing.T, base string) {
	_ = filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			return os.Chmod(path, 0o700) // before it is read
		}
		return nil
	})
	if err := os.RemoveAll(base); err != nil {
		t.Errorf("left behind: %v", err)
	}
}

// programsDir is the directory that programs made, to be removed at the end of the run.
var programsDir atomic.Value

// programs builds doorward and the thief once.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "doorward-attack-bin")
	if err != nil {
		return "", err
	}
	programsDir.Store(dir)
	for name, pkg := range map[string]string{"doorward": ".", "thief": "../../test/thief"} {
		c := exec.Command("go", "build", "-o", dir+"/"+name, pkg)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func (w *world) install() {
	w.t.Helper()
	dir, err := programs()
	if err != nil {
		w.t.Fatal(err)
	}
	w.check(os.MkdirAll(w.base+"/bin", 0o755))
	for _, name := range []string{"doorward", "thief"} {
		w.check(exec.Command("cp", dir+"/"+name, w.base+"/bin/"+name).Run())
	}
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(path, content string) {
	w.t.Helper()
	w.check(os.MkdirAll(filepath.Dir(path), 0o700))
	w.check(os.WriteFile(path, []byte(content), 0o600))
}

func (w *world) canary(path, content string) {
	w.t.Helper()
	w.write(path, content)
	w.canaries = append(w.canaries, path)
}

// own gives the world to its user.
func (w *world) own() {
	w.t.Helper()
	w.check(os.Chmod(w.base, 0o755))
	w.check(filepath.WalkDir(w.base, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || os.Getuid() != 0 {
			return err
		}
		return os.Lchown(path, w.uid, w.uid)
	}))
}

// command is doorward, run by the world's user.
func (w *world) command(args ...string) *exec.Cmd {
	c := exec.Command(w.base+"/bin/doorward", args...)
	c.Dir = w.base
	c.Env = []string{"HOME=" + w.home, "PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + w.base + "/run"}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}
	}
	return c
}

func (w *world) run(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.t.Errorf("doorward %v: %v\n%s\n%s", args, err, out, w.log.String())
	}
	return string(out)
}

func (w *world) start() {
	w.t.Helper()
	w.check(os.MkdirAll(w.base+"/run", 0o700))
	w.own()
	daemon := w.command("serve")
	daemon.Stderr = &w.log
	w.check(daemon.Start())
	w.t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait()
	})
	w.run("status", "--wait", "90s", "--json")
}

// attack lets the thief search, and compares the world before and after.
func (w *world) attack() {
	w.t.Helper()
	w.start()
	w.run("tools", "other") // it runs, and has a home
	w.run("tools", "thief") // its tools are known
	state := w.home + "/.local/state/doorward/"
	w.canary(state+"servers/other/home/data", "CANARY-other-data")
	for _, name := range []string{"audit.key", "seal.key", "node.key", "session.keys"} {
		if _, err := os.Stat(state + name); err == nil {
			w.frozen = append(w.frozen, state+name)
		}
	}
	w.own()
	rules := w.run("policy")
	before := w.look()

	paths := slices.Concat(w.canaries, w.frozen, []string{state + "doorward.db", state + "servers", w.base + "/run/doorward/doorward.sock"})
	host, err := os.Readlink("/proc/self/ns/mnt")
	w.check(err)
	argument, err := json.Marshal(map[string]any{"paths": paths, "within": w.base, "host": host})
	w.check(err)
	w.report(w.call(string(argument)))

	if diff := cmp.Diff(before, w.look()); diff != "" {
		w.t.Errorf("the server changed the world (-before +after):\n%s", diff)
	}
	if after := w.run("policy"); after != rules {
		w.t.Errorf("the policy in force changed:\n%s", after)
	}
	if strings.Contains(w.log.String(), "configuration reloaded") {
		w.t.Errorf("the daemon loaded another configuration:\n%s", w.log.String())
	}
}

func (w *world) call(argument string) []byte {
	w.t.Helper()
	c := w.command("call", "thief", "search", "--json", argument)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	began := time.Now()
	out, err := c.Output()
	if err != nil {
		w.t.Fatalf("the search ended after %v: %v\n%s%s\n%s", time.Since(began), err, out, stderr.String(), w.log.String())
	}
	return out
}

// report fails for each route that led to a canary.
func (w *world) report(out []byte) {
	w.t.Helper()
	var result struct {
		Content []struct{ Text string }
	}
	var found struct {
		Tried int
		Found []string
	}
	w.check(json.Unmarshal(out, &result))
	w.check(json.Unmarshal([]byte(result.Content[0].Text), &found))
	w.t.Logf("%d attempts", found.Tried)
	if found.Tried < 1000 {
		w.t.Errorf("%d attempts are no search", found.Tried)
	}
	for i, route := range found.Found {
		if i == 20 {
			w.t.Errorf("and %d more", len(found.Found)-i)
			break
		}
		w.t.Errorf("found: %s", route)
	}
}

// look describes everything that must not change: content and identity of canaries and frozen files, and all names in the
// directories of the configuration, the state and the vault.
func (w *world) look() map[string]string {
	w.t.Helper()
	seen := map[string]string{}
	for _, path := range append(w.canaries, w.frozen...) {
		info, err := os.Lstat(path)
		if err != nil {
			seen[path] = err.Error()
			continue
		}
		b, _ := os.ReadFile(path)
		st := info.Sys().(*syscall.Stat_t)
		seen[path] = fmt.Sprintf("%v %d %d %q", info.Mode(), st.Ino, st.Uid, b)
	}
	for _, dir := range []string{w.home + "/.config/doorward", w.home + "/.local/state/doorward", w.base + "/run/doorward", w.home + "/.ssh"} {
		w.check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() && strings.HasSuffix(path, "/servers/thief") {
				return fs.SkipDir
			}
			if err == nil && !strings.Contains(filepath.Base(path), "doorward.db-") {
				seen["name "+path] = "there"
			}
			return err
		}))
	}
	return seen
}
