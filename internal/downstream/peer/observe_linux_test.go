package peer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

// peerOf returns a puppet that has connected, and its credentials.
func peerOf(t *testing.T, attr *syscall.SysProcAttr) (puppet.Puppet, *attest.Credentials) {
	t.Helper()
	ln, path := unixListener(t)
	p := puppet.New(t, attr, path)
	return p, credsOf(t, puppet.AcceptUnix(t, ln))
}

func TestEvidenceIsWhatTheProcessLooksLike(t *testing.T) {
	t.Parallel()
	p, creds := peerOf(t, nil)
	e := NewObserver(Limits{}).Observe(t.Context(), creds)
	exe, _ := os.Executable()
	if e.Exe != exe || e.SHA256 != digestOf(t, exe) || e.ParentExe != exe || int(e.ParentPID) != os.Getpid() {
		t.Errorf("exe %q %s, parent %d %q", e.Exe, e.SHA256, e.ParentPID, e.ParentExe)
	}
	me := fmt.Sprintf("%d:%s", os.Getpid(), word(comm(t)))
	if len(e.Parents) == 0 || e.Parents[0] != me || len(e.Parents) > maxParents {
		t.Errorf("parents %q, want %q first", e.Parents, me)
	}
	ours, _ := os.ReadFile("/proc/self/cgroup")
	if e.Cgroup == "" || !strings.Contains(string(ours), e.Cgroup) {
		t.Errorf("cgroup %q, ours is %q", e.Cgroup, ours)
	}
	if r, _ := look(int32(p.Process.Pid)); e.Start != seconds(r.start) || e.Start < "0" {
		t.Errorf("start %q", e.Start)
	}
	if !e.Image.Holds() {
		t.Error("the image of a running program does not hold")
	}
}

func comm(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(b), "\n")
}

func digestOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Path and digest are those of the file that runs, whatever it is called: a copy named claude
// has its own, and so has a child of it.
func TestTheNameOfAProgramProvesNothing(t *testing.T) {
	t.Parallel()
	self, _ := os.Executable()
	claude := puppet.CopyOf(t, "claude", self)
	f, err := os.OpenFile(claude, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "another file")
	f.Close()
	ln, path := unixListener(t)

	p := puppet.New(t, nil, "")
	p.Do(t, "become", claude)
	p.Do(t, "dial", path)
	e := NewObserver(Limits{}).Observe(t.Context(), credsOf(t, puppet.AcceptUnix(t, ln)))
	if e.Exe != claude || e.SHA256 != digestOf(t, claude) || e.SHA256 == digestOf(t, self) {
		t.Errorf("a program called claude: %q %s", e.Exe, e.SHA256)
	}

	p.Do(t, "mother", self) // a child of claude that runs another file
	p.Do(t, "dial", path)
	e = NewObserver(Limits{}).Observe(t.Context(), credsOf(t, puppet.AcceptUnix(t, ln)))
	if e.Exe != self || e.SHA256 != digestOf(t, self) || e.ParentExe != claude || !strings.HasSuffix(e.Parents[0], ":claude") {
		t.Errorf("a child of a program called claude: %q, parent %q, %q", e.Exe, e.ParentExe, e.Parents)
	}
}

// The path of a running file that was removed, moved or oddly named is reported as the kernel
// has it, or left empty where it would be ambiguous. The digest is that of the running file.
func TestFilesThatAreGoneOrOddlyNamed(t *testing.T) {
	t.Parallel()
	self, _ := os.Executable()
	for _, tc := range []struct {
		name, file string
		after      func(path string) error
		want       func(path string) string
	}{
		{"removed", "a", os.Remove, func(p string) string { return p + " (deleted)" }},
		{"replaced", "a", func(p string) error {
			return os.Rename(puppet.CopyOf(t, "b", "/bin/sleep"), p)
		}, func(p string) string { return p + " (deleted)" }},
		{"moved", "a", func(p string) error { return os.Rename(p, p+"2") }, func(p string) string { return p + "2" }},
		{"really called so", "a (deleted)", func(string) error { return nil }, func(string) string { return "" }},
		{"really called so, and removed", "a (deleted)", os.Remove, func(p string) string { return p + " (deleted)" }},
		{"removed, with another file of the marked name", "a", func(p string) error {
			return errors.Join(os.Remove(p), os.Rename(puppet.CopyOf(t, "b", "/bin/sleep"), p+" (deleted)"))
		}, func(p string) string { return p + " (deleted)" }},
		{"moved to another directory", "a", func(p string) error {
			return os.Rename(p, puppet.CopyOf(t, "c", "/bin/sleep")+"x")
		}, func(string) string { return "*x" }},
		{"a line break", "a\nb", func(string) error { return nil }, func(p string) string { return p }},
		{"not UTF-8", "a\xff", func(string) error { return nil }, func(string) string { return "" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ln, path := unixListener(t)
			exe := puppet.CopyOf(t, tc.file, self)
			p := puppet.New(t, nil, "")
			p.Do(t, "become", exe)
			p.Do(t, "dial", path)
			if err := tc.after(exe); err != nil {
				t.Fatal(err)
			}
			e := NewObserver(Limits{}).Observe(t.Context(), credsOf(t, puppet.AcceptUnix(t, ln)))
			want := tc.want(exe)
			if suffix, ok := strings.CutPrefix(want, "*"); ok && strings.HasSuffix(e.Exe, suffix) {
				want = e.Exe
			}
			if e.Exe != want || e.SHA256 != digestOf(t, self) {
				t.Errorf("%q %s, want %q and the digest of the running file", e.Exe, e.SHA256, want)
			}
		})
	}
}

func credsOf(t *testing.T, c *net.UnixConn) *attest.Credentials {
	t.Helper()
	creds, err := attest.OfUnix(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { creds.Close() })
	return creds
}

// An observation during which the process executes a program returns no evidence.
func TestAnExecDuringTheLookLeavesNoEvidence(t *testing.T) {
	t.Parallel()
	p, creds := peerOf(t, nil)
	o := NewObserver(Limits{Time: time.Minute})
	for range hashings {
		o.digests.slots <- struct{}{} // the digest has to wait
	}
	got := make(chan Evidence)
	go func() { got <- o.Observe(t.Context(), creds) }()
	puppet.Eventually(t, "the look has begun", func() bool { o.digests.mu.Lock(); defer o.digests.mu.Unlock(); return len(o.digests.known) > 0 })
	p.Tell(t, "become", "/proc/self/exe") // the same file: only the image differs
	p.Line(t, "done")
	for range hashings {
		<-o.digests.slots
	}
	if e := <-got; fmt.Sprint(e) != fmt.Sprint(Evidence{}) {
		t.Errorf("found %+v", e)
	}
	if e := o.Observe(t.Context(), creds); e.Exe == "" || !e.Image.Holds() {
		t.Errorf("after it: %+v", e)
	}
}

func TestTheEndDuringTheLookLeavesNoEvidence(t *testing.T) {
	t.Parallel()
	p, creds := peerOf(t, nil)
	o := NewObserver(Limits{Time: time.Minute})
	for range hashings {
		o.digests.slots <- struct{}{}
	}
	got := make(chan Evidence)
	go func() { got <- o.Observe(t.Context(), creds) }()
	puppet.Eventually(t, "the look has begun", func() bool { o.digests.mu.Lock(); defer o.digests.mu.Unlock(); return len(o.digests.known) > 0 })
	p.End()
	for range hashings {
		<-o.digests.slots
	}
	if e := <-got; fmt.Sprint(e) != fmt.Sprint(Evidence{}) {
		t.Errorf("found %+v", e)
	}
	if e := o.Observe(t.Context(), creds); fmt.Sprint(e) != fmt.Sprint(Evidence{}) {
		t.Errorf("of a dead process: %+v", e)
	}
}

// An observation cannot tell which program wrote a request if the process executed another
// one in between: it finds the later program. Only bytes that answer something issued after
// the observation are known to come from the observed program.
func TestALookCannotTellTheWriterBeforeAnExec(t *testing.T) {
	t.Parallel()
	self, _ := os.Executable()
	trusted := puppet.CopyOf(t, "trusted", self)
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	c := puppet.AcceptUnix(t, ln)
	creds := credsOf(t, c)
	g := attest.Guard(c, creds, nil)
	p.Do(t, "say", "request")
	p.Do(t, "become", trusted)
	mustSay(t, g, "request")
	e := NewObserver(Limits{}).Observe(t.Context(), creds)
	if e.Exe != trusted || !e.Image.Holds() {
		t.Errorf("the observation is %+v; if it can tell the writer by now, the rules about programs can count it for one-shot requests", e)
	}
	p.Do(t, "say", "answer to the challenge") // written by the image that was observed
	mustSay(t, g, "answer to the challenge")
	p.Do(t, "become", self)
	if e.Image.Holds() {
		t.Error("the next exec is not noticed")
	}
}

func mustSay(t *testing.T, c net.Conn, want string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 64)
	if n, err := c.Read(b); string(b[:n]) != want || err != nil {
		t.Fatalf("read %q, %v; want %q", b[:n], err, want)
	}
}

// Of a process that protects itself from its own user, and of another user's, program and
// image are not observed, but what every user may see is.
func TestAHiddenProcessHasNoProgram(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	path := filepath.Join(puppet.OpenDir(t), "s")
	d := puppet.Start(t, puppet.AsUID(12345), "observe", path)
	d.Line(t, "ready")
	p := puppet.New(t, puppet.AsUID(12345), "")
	p.Do(t, "protect")
	p.Do(t, "dial", path)
	if got, want := d.Line(t, ""), fmt.Sprintf("exe false digest false image false start true cgroup true parent %d", os.Getpid()); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	puppet.New(t, puppet.AsUID(12345), path)
	if got, want := d.Line(t, ""), fmt.Sprintf("exe true digest true image true start true cgroup true parent %d", os.Getpid()); got != want {
		t.Errorf("a process of the same user: %s\nwant %s", got, want)
	}
	puppet.New(t, puppet.AsUID(12346), path)
	if got := d.Line(t, ""); !strings.HasPrefix(got, "exe false digest false image false") {
		t.Errorf("a process of another user: %s", got)
	}
}

func TestAForeignProcessIsNotObserved(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	for _, flags := range []uintptr{syscall.CLONE_NEWPID, syscall.CLONE_NEWNS} {
		_, creds := peerOf(t, &syscall.SysProcAttr{Cloneflags: flags})
		if e := NewObserver(Limits{}).Observe(t.Context(), creds); fmt.Sprint(e) != fmt.Sprint(Evidence{}) {
			t.Errorf("of a foreign process: %+v", e)
		}
	}
	for _, c := range []*attest.Credentials{nil, {}, {PID: int32(os.Getpid()), Foreign: true}} {
		if e := NewObserver(Limits{}).Observe(t.Context(), c); fmt.Sprint(e) != fmt.Sprint(Evidence{}) {
			t.Errorf("of %+v: %+v", c, e)
		}
	}
}

func TestUnitsAreReadFromTheControlGroup(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/system.slice/doorward.service":                                            "doorward.service",
		"/system.slice/foo.service/supervisor":                                      "foo.service",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/app-x-1.scope":     "app-x-1.scope",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/a.service/b.scope": "b.scope",
		"/user.slice/user-1000.slice/session-2.scope":                               "session-2.scope",
		"/system.slice/foo.service (deleted)":                                       "",
		"/.service/.scope":                                                          "",
		"/user.slice":                                                               "",
		"/":                                                                         "",
		"":                                                                          "",
	} {
		if got := unit(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestImageHandles(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		name string
		size int
	}{{"pagemap", 8}, {"maps", 1}} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			p := puppet.New(t, nil, "")
			m := openImageFile(fmt.Sprintf("/proc/%d/%s", p.Process.Pid, f.name), f.size)
			if m == nil {
				t.Skip("this kernel has no such file")
			}
			defer m.Release()
			for range 2 {
				if !m.Holds() {
					t.Fatal("a running program does not hold")
				}
			}
			p.Do(t, "become", "/proc/self/exe")
			if m.Holds() {
				t.Error("an exec of the same file is not noticed")
			}
			m = openImageFile(fmt.Sprintf("/proc/%d/%s", p.Process.Pid, f.name), f.size)
			defer m.Release()
			p.Do(t, "heir")
			puppet.Eventually(t, "the exit is noticed", func() bool { return !m.Holds() })
		})
	}
	if m := openImage(1 << 30); m != nil {
		t.Error("no process has an image")
	}
	var none *Image
	if none.Holds() {
		t.Error("no image holds")
	}
}

// An image holds until its connection is closed, or longer if it is retained: until it is
// released.
func TestARetainedImageOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	_, creds := peerOf(t, nil)
	o := NewObserver(Limits{})
	kept, dropped := o.Observe(t.Context(), creds).Image, o.Observe(t.Context(), creds).Image
	kept.Retain()
	creds.Close()
	if !kept.Holds() || dropped.Holds() {
		t.Errorf("after the connection: kept %v, dropped %v", kept.Holds(), dropped.Holds())
	}
	dropped.Retain() // too late, and harmless
	dropped.Release()
	kept.Release()
	kept.Release()
	if kept.Holds() || dropped.Holds() {
		t.Error("a released image holds")
	}
	if e := o.Observe(t.Context(), creds); fmt.Sprint(e) != fmt.Sprint(Evidence{}) {
		t.Errorf("a look after Close finds %+v", e)
	}
}

// Observations leave no descriptor open once their images are released. The test is not
// parallel because it counts the descriptors of the process.
func TestLooksLeaveNoDescriptor(t *testing.T) {
	p, creds := peerOf(t, nil)
	o := NewObserver(Limits{})
	o.Observe(t.Context(), creds).Image.Retain()
	before := openDescriptors(t)
	var retained []*Image
	for range 20 {
		again := &attest.Credentials{PID: creds.PID, UID: creds.UID}
		m := o.Observe(t.Context(), again).Image
		m.Retain()
		retained = append(retained, m)
		again.Close()
	}
	p.End()
	for _, m := range retained {
		m.Release()
	}
	puppet.Eventually(t, "all are closed", func() bool { return openDescriptors(t) <= before })
}

func TestALookThroughAnOldNamespaceMountFindsNothing(t *testing.T) {
	t.Parallel()
	if !ownProc() {
		t.Error("the own /proc counts as another namespace's")
	}
	puppet.NeedRoot(t)
	d := puppet.Start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "own-proc")
	if got := d.Line(t, ""); got != "own false, of process 1: {Exe: SHA256: Start: Cgroup: Unit: Process: ParentProcess: ParentPID:0 ParentExe: Parents:[] Image:<nil>}" {
		t.Errorf("in a new pid namespace with the old /proc: %s", got)
	}
}
