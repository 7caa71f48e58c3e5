package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// order is what a warden is told: which server to start, and how to contain it.
type order struct {
	Hide, Homes []string
	Shared      []string // what other servers write
	Roots       []string // Dir is held from here on, and lies in one of them
	Key         bool     // the warden has a key, of which the kernel gives a user few
	Path, Dir   string
	Args, Env   []string
	Sandbox     Sandbox
}

// asWarden stands in for the daemon and is undumpable like it: it starts one contained server and passes on its output.
// Then it says how the server ended.
func asWarden(args []string) int {
	var o order
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		log.Print(err)
		return 1
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Print(err)
		return 1
	}
	// Key rings belong to threads, and the thread that starts a child is this one.
	runtime.LockOSThread()
	if o.Key {
		if err := giveKey(); err != nil {
			log.Print(err)
			return 1
		}
	}
	fmt.Println("ready")
	r, err := NewRunner(Options{Hide: o.Hide, Homes: o.Homes, Private: "/"})
	if err != nil {
		log.Print(err)
		return 1
	}
	r.Share(o.Shared)
	var folder *os.File
	if o.Roots != nil {
		if folder, o.Dir, err = OpenFolder(o.Dir, o.Roots); err != nil {
			log.Print(err)
			return 1
		}
	}
	p, err := r.Start(Spec{Server: "s", Path: o.Path, Args: o.Args, Env: append(o.Env, os.Environ()...), Dir: o.Dir, Folder: folder,
		Sandbox: o.Sandbox, Stderr: func(l string) { log.Print(l) }})
	if err != nil {
		fmt.Println("not started:", err)
		return 0
	}
	_, measures := p.Sandbox()
	for _, m := range measures {
		fmt.Printf("measure %s: %s %s\n", m.Name, m.State, m.Detail)
	}
	_, _ = io.Copy(os.Stdout, p.Stdout)
	<-p.Done()
	fmt.Println("ended:", statusText(p.Err()))
	return 0
}

// wardensKey is a key in the session keyring of a warden.
const wardensKey = "doorward-test"

func giveKey() error {
	if err := newKeyring(); err != nil {
		return err
	}
	_, err := unix.AddKey("user", wardensKey, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
	return err
}

// place is a directory outside of /tmp, of which a contained server has its own, that belongs to who.
func (s *stage) place(who *inmate) string {
	s.t.Helper()
	dir := must(os.MkdirTemp("/var/tmp", "doorward"))
	s.t.Cleanup(func() { os.RemoveAll(dir) })
	who.own(dir)
	return dir
}

// inmate is the user that warden and server run as.
type inmate struct {
	name string
	t    *testing.T
	how  func(c *exec.Cmd)
	uid  int
}

func (i *inmate) root() bool { return i.uid == 0 }

// own gives a path to the inmate.
func (i *inmate) own(path string) {
	i.t.Helper()
	if err := os.Chown(path, i.uid, i.uid); err != nil && i.uid != os.Getuid() {
		i.t.Fatal(err)
	}
}

// file writes a file of the inmate's, with the directories above it.
func (i *inmate) file(path, content string) string {
	i.t.Helper()
	var made []string
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		made = append(made, dir)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		i.t.Fatal(err)
	}
	for _, dir := range append(made, path) {
		i.own(dir)
	}
	return path
}

// eachUser runs a test as an ordinary user, and as root if the tests run as root.
func eachUser(t *testing.T, test func(t *testing.T, s *stage, who *inmate)) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Run("root", func(t *testing.T) {
			t.Parallel()
			test(t, newStage(t, Options{}), &inmate{name: "root", t: t})
		})
	}
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, Options{})
		test(t, s, s.user())
	})
}

// user is the user of the tests, or an ordinary one if that is root.
func (s *stage) user() *inmate {
	s.t.Helper()
	who := &inmate{name: "user", t: s.t, uid: os.Getuid()}
	if who.uid == 0 {
		c := &exec.Cmd{}
		s.asOtherUser(c)
		who.uid = int(c.SysProcAttr.Credential.Uid)
		who.how = func(n *exec.Cmd) { n.Path, n.Dir, n.SysProcAttr = c.Path, c.Dir, c.SysProcAttr }
	}
	return who
}

// self is this binary where the inmate can execute it.
func (i *inmate) self() string {
	if i.how == nil {
		return self()
	}
	c := &exec.Cmd{}
	i.how(c)
	return c.Path
}

// warden starts a warden with a server.
func (s *stage) warden(who *inmate, o order) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
	s.t.Helper()
	return s.daemon(who.how, "as-warden", string(must(json.Marshal(o))))
}

// prison runs a server under a warden to its end and returns everything that was said.
func (s *stage) prison(who *inmate, o order) map[string]string {
	s.t.Helper()
	if o.Path == "" {
		o.Path, o.Args = who.self(), append([]string{"as-prisoner"}, o.Args...)
	}
	_, _, out := s.warden(who, o)
	said := map[string]string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		name, result, _ := strings.Cut(lines.Text(), ": ")
		said[name] = result
	}
	return said
}

// attempts runs a prisoner that makes attempts, and returns the result of each.
func (s *stage) attempts(who *inmate, o order, attempts ...string) func(attempt string) string {
	s.t.Helper()
	o.Args = attempts
	said := s.prison(who, o)
	if said["ended"] != "exit status 0" {
		s.t.Fatalf("the prisoner did not get to its end: %v", said)
	}
	return func(attempt string) string {
		s.t.Helper()
		result, ok := said[attempt]
		if !ok {
			s.t.Fatalf("nothing was said of %q: %v", attempt, said)
		}
		return result
	}
}

// refused checks that each attempt had the result want, which is an error number, ok or a text.
func (s *stage) refused(result func(string) string, want string, attempts ...string) {
	s.t.Helper()
	for _, a := range attempts {
		if got := result(a); got != want {
			s.t.Errorf("%s: %s, want %s", a, got, want)
		}
	}
}

// asPrisoner tries each of its arguments and says how it went.
func asPrisoner(args []string) int {
	runtime.LockOSThread()
	for _, a := range args {
		verb, rest, _ := strings.Cut(a, " ")
		try, ok := verbs()[verb]
		if !ok {
			log.Printf("there is no verb %q", verb)
			return 1
		}
		fmt.Printf("%s: %s\n", a, outcome(try(strings.Fields(rest))))
	}
	return 0
}

// outcome is the name of an error number, ok, or a text.
func outcome(text string, err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case err != nil:
		return err.Error()
	case text != "":
		return text
	}
	return "ok"
}
