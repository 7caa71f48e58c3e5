package peer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

func TestAProcessThatRunsIsNotGone(t *testing.T) {
	t.Parallel()
	p := puppet.New(t, nil, "")
	name := nameOf(t, p.Process.Pid)
	if Gone(name) || Gone(nameOf(t, os.Getpid())) || Gone(nameOf(t, 1)) {
		t.Error("a process that runs is gone")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.Tell(t, "become", self)
	p.Line(t, "done")
	if Gone(name) {
		t.Error("another program in its place, and the process is gone")
	}
}

func TestAProcessOfAnotherUserThatRunsIsNotGone(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	p := puppet.New(t, puppet.AsUID(65534), "")
	if Gone(nameOf(t, p.Process.Pid)) {
		t.Error("it is gone")
	}
}

// A process that has exited is gone even before it is reaped.
func TestAProcessThatHasExitedIsGoneBeforeItIsReaped(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{puppet.Env + "=hold"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name := nameOf(t, cmd.Process.Pid)
	if Gone(name) {
		t.Error("gone while it runs")
	}
	in.Close()
	puppet.Eventually(t, "a process that exited is gone", func() bool { return Gone(name) })
	if _, ok := look(int32(cmd.Process.Pid)); !ok {
		t.Error("it was reaped already: the test shows nothing")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !Gone(name) {
		t.Error("not gone after it was reaped")
	}
}

func TestANumberWithAnotherStartIsAnotherProcess(t *testing.T) {
	t.Parallel()
	r, _ := look(int32(os.Getpid()))
	if !Gone(attest.Instance(int32(os.Getpid()), r.start-1)) || !Gone(attest.Instance(int32(os.Getpid()), r.start+1)) {
		t.Error("a process of another start is there")
	}
	if !Gone(fmt.Sprintf("00000000-0000-4000-8000-000000000000/%d@%d", os.Getpid(), r.start)) {
		t.Error("a process of another boot is there")
	}
}

// A name with the number of a thread is not a process.
func TestAThreadIsNoProcess(t *testing.T) {
	t.Parallel()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < 2 {
		t.Fatalf("the stage is wrong: %d threads, %v", len(threads), err)
	}
	for _, e := range threads {
		tid, _ := strconv.Atoi(e.Name())
		r, seen := look(int32(tid))
		if seen && tid != os.Getpid() && !Gone(attest.Instance(int32(tid), r.start)) {
			t.Errorf("thread %d passes for a process", tid)
		}
	}
}

// A malformed name is never gone. Each process has one spelling of its name: other spellings
// of the numbers count as malformed.
func TestAMalformedNameIsNotGone(t *testing.T) {
	t.Parallel()
	me := nameOf(t, os.Getpid())
	boot, rest, _ := strings.Cut(me, "/")
	_, start, _ := strings.Cut(rest, "@")
	for _, name := range []string{"", "/", "@", "/@", boot, boot + "/", boot + "/1", boot + "/@", boot + "/12345", boot + "/1@", boot + "/@1",
		boot + "/0@" + start, boot + "/-1@" + start, boot + "/+1@" + start, boot + "/01@" + start, boot + "/1@0" + start, boot + "/1@+1", boot + "/1@-1",
		boot + "/ 1@" + start, boot + "/1@" + start + " ", boot + "/1@" + start + "\n", boot + "/2147483648@1", boot + "/1@18446744073709551616",
		boot + "/99999999999999999999@1", boot + "/1@1@1", boot + "//1@1", "boot/1@1", "/1@1", strings.ToUpper(boot) + "x/1@1",
		boot[:35] + "/1@1", boot + "0/1@1", strings.Replace(boot, "-", "0", 1) + "/1@1", boot[:35] + "g/1@1", "\x00" + me, me + "\x00"} {
		if Gone(name) {
			t.Errorf("%q is gone", name)
		}
	}
}

// FuzzGone: a name is accepted in one spelling only, and any other text is not gone.
func FuzzGone(f *testing.F) {
	for _, s := range []string{"", "b/1@2", attest.BootID() + "/1@2", attest.BootID() + "/4194304@99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		boot, pid, start, ok := parseInstance(s)
		if ok && s != boot+"/"+strconv.Itoa(int(pid))+"@"+strconv.FormatUint(start, 10) {
			t.Errorf("%q is read as %s %d %d", s, boot, pid, start)
		}
		if !ok && Gone(s) {
			t.Errorf("%q is malformed and gone", s)
		}
	})
}

// Without a pidfd, on a kernel before 5.3 or in a process without free descriptors, the start
// time decides whether a process is gone.
func TestWithoutAHandleTheStartTimeDecides(t *testing.T) {
	t.Parallel()
	p := puppet.New(t, nil, "")
	pid := int32(p.Process.Pid)
	r, _ := look(pid)
	for _, err := range []error{unix.ENOSYS, unix.EPERM, unix.EMFILE} {
		none := func(int, int) (int, error) { return -1, err }
		if goneHere(pid, r.start, none) {
			t.Errorf("%v: gone while it runs", err)
		}
		if !goneHere(pid, r.start+1, none) {
			t.Errorf("%v: there with another start", err)
		}
	}
	p.End()
	none := func(int, int) (int, error) { return -1, unix.ENOSYS }
	puppet.Eventually(t, "it is gone", func() bool { return goneHere(pid, r.start, none) })
}

// A process whose first thread has exited is not gone while other threads run, although /proc
// shows it as a zombie.
func TestAProcessOutlivesItsFirstThread(t *testing.T) {
	t.Parallel()
	h := puppet.Start(t, nil, "headless")
	h.Line(t, "headless")
	name := nameOf(t, h.Process.Pid)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.Process.Pid))
	if f := attest.StatFields(stat); err != nil || string(f[0]) != "Z" {
		t.Fatalf("the stage is wrong: %s %v", stat, err)
	}
	if Gone(name) {
		t.Error("gone, and its other threads run")
	}
	h.In.Close()
	puppet.Eventually(t, "it is gone with its last thread", func() bool { return Gone(name) })
}

// headless acts as a process whose first thread has exited.
func headless([]string) error {
	left := make(chan bool)
	for range 64 { // one of them has the first thread
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == os.Getpid() {
				left <- true
				unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
			}
			select {}
		}()
	}
	go func() {
		<-left
		for stat := []byte(nil); ; {
			if stat, _ = os.ReadFile("/proc/self/stat"); len(stat) > 0 && string(attest.StatFields(stat)[0]) == "Z" {
				break
			}
		}
		fmt.Println("headless")
		puppet.LineOf(0)
		os.Exit(0)
	}()
	select {}
}

// A dead process is gone although another process has its number.
func TestANumberUsedAgainIsGone(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	d := puppet.Start(t, puppet.OwnNumbers(), "reuse-gone")
	if got := d.Line(t, ""); got != "gone" {
		t.Errorf("it %s", got)
	}
}

func reusedGone([]string) error {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		return err
	}
	p, err := puppet.NewStagehand("")
	if err != nil {
		return err
	}
	pid := int32(p.Cmd.Process.Pid)
	r, _ := look(pid)
	name := attest.Instance(pid, r.start)
	if Gone(name) {
		return errors.New("gone while it runs")
	}
	time.Sleep(30 * time.Millisecond) // start times have a resolution of 10 ms, and the next process's must differ
	if err := p.Replace(pid); err != nil {
		return err
	}
	if heir, ok := look(pid); !ok || heir.start == r.start {
		return fmt.Errorf("the stage is wrong: %+v %v", heir, ok)
	}
	if !Gone(name) {
		return errors.New("the next process with the number counts as the dead one")
	}
	fmt.Println("gone")
	return nil
}

// A running process that hidepid hides is not gone; after its end it is.
func TestAProcessThatIsHiddenIsNotGone(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	hidden := puppet.New(t, puppet.AsUID(12345), "")
	other := nameOf(t, hidden.Process.Pid)
	d := puppet.Start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "hidden", other)
	if got := d.Line(t, ""); got != "hidden false" {
		t.Errorf("it says %q", got)
	}
	hidden.End()
	d = puppet.Start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "hidden", other)
	if got := d.Line(t, ""); got != "hidden true" {
		t.Errorf("after its end it says %q", got)
	}
}

func hiddenGone(args []string) error {
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"))
	if err == nil {
		err = errors.Join(syscall.Setgid(65534), syscall.Setuid(65534))
	}
	if err != nil {
		return err
	}
	_, pid, _, _ := parseInstance(args[0])
	if _, seen := look(pid); seen {
		return errors.New("the stage is wrong: the process is not hidden")
	}
	fmt.Println("hidden", Gone(args[0]))
	return nil
}

// A process that sees the /proc of another pid namespace calls no process gone and reads no
// chain, because the numbers there have another meaning.
func TestTheProcOfAnotherNamespaceIsNotUsed(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	d := puppet.Start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "foreign-gone", attest.BootID()+"/4194303@1")
	if got := d.Line(t, ""); got != "foreign false "+ErrLineage.Error() {
		t.Errorf("it says %q", got)
	}
	if !Gone(attest.BootID() + "/4194303@1") {
		t.Error("no process has that number, and it is not gone")
	}
}

func foreignGone(args []string) error {
	_, err := Above()
	fmt.Println("foreign", Gone(args[0]), err)
	return nil
}

func TestAboveListsTheParentsOfThisProcess(t *testing.T) {
	t.Parallel()
	above, err := Above()
	if err != nil {
		t.Fatal(err)
	}
	parent, _ := look(int32(os.Getppid()))
	if want := (Process{nameOf(t, os.Getppid()), word(parent.name)}); len(above) == 0 || above[0] != want {
		t.Fatalf("above is %v, want it to begin with %v", above, want)
	}
	if top := above[len(above)-1]; top.Instance != nameOf(t, 1) {
		t.Errorf("it ends with %v", top)
	}
	if slices.ContainsFunc(above, func(p Process) bool { return p.Instance == nameOf(t, os.Getpid()) || Gone(p.Instance) }) {
		t.Errorf("itself or a process that is gone is in %v", above)
	}
}

// The daemon and the caller find the same names above the caller. A session is bound to one
// of them, so both must agree.
func TestAboveAgreesWithAncestors(t *testing.T) {
	t.Parallel()
	p := puppet.New(t, nil, "")
	chain := chainOf(t, p)
	above := strings.Fields(p.Do(t, "above"))
	if !slices.Equal(chain[1:], above) {
		t.Errorf("the daemon sees %q, the caller %q", chain[1:], above)
	}
}
