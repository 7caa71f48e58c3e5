// Package docs runs the commands of the documentation.
package docs

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// A block of sh in a document is run unchanged, in the order of the page, with the real
// program in a home of its own. A comment before the block says what else it needs:
//
//	<!-- test: daemon -->       a daemon that serves examples/quickstart.yaml
//	<!-- test: yes -->          --yes on each line, instead of an answer to its question; also "daemon yes"
//	<!-- test: serve -->        it is run until the daemon that it starts is ready
//	<!-- test: skip REASON -->  it is not run here; the skip is counted
//
// "exit status N" in the comment of a line is the status that the line must have.
var block = regexp.MustCompile("(?ms)^(?:<!-- test: ([^\n]*) -->\n)?```sh\n(.*?)^```$")

// pages are the documents with commands. A page may use files that an earlier page made.
var pages = []string{"docs/certificates.md", "README.md", "docs/clients.md", "docs/configuration.md", "docs/retention.md", "docs/troubleshooting.md",
	"docs/install.md", "docs/upgrade.md", "docs/backup.md", "docs/uninstall.md", "docs/second-machine.md", "docs/instructions.md", "docs/messaging.md"}

// TestCommandsOfTheDocuments runs each block of each page.
func TestCommandsOfTheDocuments(t *testing.T) {
	h := newHome(t)
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(h.root, page))
		must(t, err)
		found := block.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s has no commands", page)
		}
		for i, m := range found {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(page), i+1), func(t *testing.T) { h.run(t, m[1], m[2]) })
		}
	}
}

// TestEveryPageWithCommandsIsRun: every document with a block of sh is in pages.
func TestEveryPageWithCommandsIsRun(t *testing.T) {
	root := doortest.ModuleRoot(t)
	all, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	must(t, err)
	for _, path := range append(all, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		must(t, err)
		page, err := filepath.Rel(root, path)
		must(t, err)
		if known := strings.Contains(strings.Join(pages, " ")+" ", page+" "); block.Match(text) && !known {
			t.Errorf("the commands of %s are not run", page)
		}
	}
}

// home is the home directory of a new user.
type home struct {
	root, dir, work string
	port            string // replaces 7866, which another daemon may use
}

func newHome(t *testing.T) *home {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &home{root: doortest.ModuleRoot(t), dir: dir, work: filepath.Join(dir, "work"), port: strconv.Itoa(doortest.FreePort(t))}
	for _, d := range []string{"work/bin", "run", ".config/doorward"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	for _, program := range []string{"cmd/doorward", "examples/notes-server"} {
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(h.work, "bin")+"/", ".")
		build.Dir = filepath.Join(h.root, program)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", program, err, out)
		}
	}
	quick, err := os.ReadFile(filepath.Join(h.root, "examples/quickstart.yaml"))
	must(t, err)
	text := strings.ReplaceAll(h.here(string(quick)), "../bin/notes-server", filepath.Join(h.work, "bin/notes-server"))
	must(t, os.WriteFile(filepath.Join(dir, ".config/doorward/doorward.yaml"), []byte(text), 0o600))
	return h
}

// here is a text with the port of this home.
func (h *home) here(text string) string { return strings.ReplaceAll(text, "7866", h.port) }

// sh is a shell in the home that runs a text.
func (h *home) sh(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", text)
	cmd.Dir = h.work
	cmd.Env = []string{"PATH=" + filepath.Join(h.work, "bin") + ":" + os.Getenv("PATH"), "HOME=" + h.dir, "LANG=C.UTF-8", "XDG_RUNTIME_DIR=" + filepath.Join(h.dir, "run")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (h *home) run(t *testing.T, marker, text string) {
	word, rest, _ := strings.Cut(marker, " ")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	switch word {
	case "skip":
		t.Skip(rest)
	case "serve":
		h.serve(t, h.here(text))()
		return
	case "daemon":
		_ = os.Remove(filepath.Join(h.work, "doorward.yaml")) // left by an earlier page
		defer h.serve(t, "doorward serve")()
	case "yes", "":
	default:
		t.Fatalf("unknown marker %q", marker)
	}
	if word == "yes" || rest == "yes" {
		text = regexp.MustCompile(`(?m)^(doorward (?:import|install|uninstall|allow|audit prune)\b[^#\n]*?)(\s*(?:#.*)?)$`).ReplaceAllString(text, "$1 --yes$2")
	}
	text = regexp.MustCompile(`(?m)^([^#\n]+?)\s*#.*exit status (\d+).*$`).ReplaceAllString(text, "{ $1; } && exit 99 || test $$? = $2")
	if out, err := h.sh(ctx, h.here(text)).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, text, out)
	}
}

// serve runs a text that starts a daemon, and returns when the daemon is ready. stop ends it.
func (h *home) serve(t *testing.T, text string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := h.sh(ctx, text)
	errs, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	stop = func() {
		cancel()
		_ = cmd.Wait() // ended by a signal
		// The daemon may outlive the shell.
		doortest.Becomes(20*time.Second, func() bool { return syscall.Kill(-cmd.Process.Pid, 0) != nil })
	}
	var said []string
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		if said = append(said, lines.Text()); lines.Text() == "ready" {
			go func() {
				for lines.Scan() { // a full pipe would stop the daemon
				}
			}()
			return stop
		}
	}
	stop()
	t.Fatalf("no daemon:\n%s", strings.Join(said, "\n"))
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
