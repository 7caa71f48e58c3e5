package peer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// digestFile asks for the digest of a file as if a process executed it.
func digestFile(t *testing.T, d *digests, path string) string {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	id, ok := identify(fd, "")
	if !ok {
		t.Fatalf("%s has no identity", path)
	}
	return d.of(t.Context(), exeFile{fd}, id)
}

func newTestDigests(l Limits) *digests { return newDigests(l.withDefaults()) }

// busy takes all slots until the returned function is called.
func busy(d *digests) (free func()) {
	for range hashings {
		d.slots <- struct{}{}
	}
	return func() {
		for range hashings {
			<-d.slots
		}
	}
}

// settledFile is a file with times so old that any change of it alters them.
func settledFile(t *testing.T) string {
	t.Helper()
	path, err := filepath.EvalSymlinks("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if id, ok := identify(fd, ""); !ok || !id.settled(time.Now()) {
		t.Fatalf("%s changed a moment ago", path)
	}
	return path
}

func TestAFileIsReadOnce(t *testing.T) {
	t.Parallel()
	d := newTestDigests(Limits{Time: 30 * time.Millisecond})
	path := settledFile(t)
	want := digestOf(t, path)
	free := busy(d)
	if got := digestFile(t, d, path); got != "" {
		t.Errorf("a digest without reading: %s", got)
	}
	free()

	d = newTestDigests(Limits{})
	free = busy(d)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got := digestFile(t, d, path); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	puppet.Eventually(t, "one of them has an entry", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return len(d.known) == 1 })
	free()
	wg.Wait()

	defer busy(d)() // from here on no file can be read
	if got := digestFile(t, d, path); got != want {
		t.Errorf("the second look: %q", got)
	}
}

// The digest of a file that changed a moment ago is not kept, because two changes within the
// resolution of its times look like one.
func TestTheDigestOfAFreshFileIsNotKept(t *testing.T) {
	t.Parallel()
	d := newTestDigests(Limits{})
	path := filepath.Join(puppet.OpenDir(t), "f")
	for _, text := range []string{"one", "two", "one"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := digestFile(t, d, path); got != digestOf(t, path) {
			t.Errorf("%s: %q", text, got)
		}
		fd, _ := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		id, _ := identify(fd, "")
		unix.Close(fd)
		if _, fresh := d.entry(id); !fresh {
			t.Errorf("%s: it is kept", text)
		}
		d.known = map[fileID]*digest{} // without the entry that the check made
	}
}

func TestAChangedFileHasAnotherIdentity(t *testing.T) {
	t.Parallel()
	path := filepath.Join(puppet.OpenDir(t), "f")
	if err := os.WriteFile(path, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	before, _ := identify(fd, "")
	if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	after, ok := identify(fd, "")
	if !ok || before == after || !before.same(after) {
		t.Errorf("%+v and %+v", before, after)
	}
	d := newTestDigests(Limits{})
	if got, ok := d.hash(exeFile{fd}, before, time.Now().Add(time.Second)); ok {
		t.Errorf("a file that changed has the digest %s", got)
	}
	if got, ok := d.hash(exeFile{fd}, after, time.Now().Add(time.Second)); !ok || got != digestOf(t, path) {
		t.Errorf("as it is now: %q, %v", got, ok)
	}
}

func TestHashingHasLimits(t *testing.T) {
	t.Parallel()
	path := settledFile(t)
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := digestFile(t, newTestDigests(Limits{Bytes: fi.Size() - 1}), path); got != "" {
		t.Errorf("a larger file: %s", got)
	}
	if got := digestFile(t, newTestDigests(Limits{Bytes: fi.Size()}), path); got == "" {
		t.Error("a file of just that size has no digest")
	}

	slow := newTestDigests(Limits{Time: 20 * time.Millisecond, Retry: 100 * time.Millisecond})
	free := busy(slow)
	for range 3 {
		if got := digestFile(t, slow, path); got != "" {
			t.Errorf("in no time: %s", got)
		}
	}
	free()
	puppet.Eventually(t, "it is tried again", func() bool { return digestFile(t, slow, path) != "" })

	if got, ok := readAll(bytes.NewReader(make([]byte, 10)), 10, time.Now().Add(-time.Second)); ok {
		t.Errorf("past the deadline: %s", got)
	}
	if got, ok := readAll(bytes.NewReader(make([]byte, 9)), 10, time.Now().Add(time.Minute)); ok {
		t.Errorf("a file that shrank: %s", got)
	}

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	d := newTestDigests(Limits{Time: time.Minute})
	defer busy(d)()
	fd, _ := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	id, _ := identify(fd, "")
	if got := d.of(gone, exeFile{fd}, id); got != "" {
		t.Errorf("for a caller that has left: %s", got)
	}
}

func TestTheNumberOfKeptDigestsIsBounded(t *testing.T) {
	t.Parallel()
	d := newTestDigests(Limits{Known: 8})
	dir := puppet.OpenDir(t)
	for i := range 40 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := digestFile(t, d, path); got != digestOf(t, path) {
			t.Errorf("file %d: %q", i, got)
		}
	}
	if len(d.known) > 8 {
		t.Errorf("%d are kept", len(d.known))
	}
}

// Only a regular file on a file system of the kernel itself is read. The server of any other
// file is not even asked, because it may never answer.
func TestFilesThatOthersServeAreNotRead(t *testing.T) {
	t.Parallel()
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	unix.Write(fd, []byte("x"))
	if got := digestFile(t, newTestDigests(Limits{}), fmt.Sprintf("/proc/self/fd/%d", fd)); got != "" {
		t.Errorf("a file in memory, which may change meanwhile: %s", got)
	}
	for _, path := range []string{"/dev/null", "/proc/self/status", "/"} {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := identify(fd, ""); ok && isLocal(fd) {
			t.Errorf("%s would be read", path)
		}
		unix.Close(fd)
	}

	puppet.NeedRoot(t)
	d := puppet.Start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "fuse", filepath.Join(puppet.OpenDir(t), "f"))
	if got := d.Line(t, ""); got != "statfs hangs true, known true, local false, digest false" {
		t.Errorf("a file of a FUSE server that does not answer: %s", got)
	}
}

// fuse mounts a file of a server that never answers, and asks for its digest.
func fuse(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := os.WriteFile(args[0], nil, 0o755); err != nil {
		return err
	}
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	options := fmt.Sprintf("fd=%d,rootmode=100755,user_id=0,group_id=0", server)
	if err := unix.Mount("fuse", args[0], "fuse", 0, options); err != nil {
		return err
	}
	asked := make(chan struct{})
	go func() {
		var st unix.Statfs_t
		unix.Statfs(args[0], &st)
		close(asked)
	}()
	hangs := false
	select {
	case <-asked:
	case <-time.After(50 * time.Millisecond):
		hangs = true
	}
	fd, err := unix.Open(args[0], unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	id, known := identify(fd, "")
	local := isLocal(fd)
	sum := newTestDigests(Limits{}).of(context.Background(), exeFile{fd}, id)
	fmt.Printf("statfs hangs %v, known %v, local %v, digest %v\n", hangs, known, local, sum != "")
	return nil
}

func TestTheTypeOfAMountIsItsWordAfterTheDash(t *testing.T) {
	t.Parallel()
	info := []byte("22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" +
		"222 22 0:50 / /mnt/a\\040-\\040xfs rw - fuse.sshfs host:/x rw\n" +
		"23 22 0:51 / /b rw\n" +
		"24 22 0:52 / /c rw shared:2 master:1 - nfs4 server:/y rw\n")
	for id, want := range map[uint64]string{22: "ext4", 222: "fuse.sshfs", 23: "", 24: "nfs4", 2: "", 25: ""} {
		if got := fsType(info, id); got != want {
			t.Errorf("mount %d: %q, want %q", id, got, want)
		}
	}
	for _, name := range []string{"", "fuse", "fuse.sshfs", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "virtiofs", "autofs", "proc"} {
		if local[name] {
			t.Errorf("%s counts as local", name)
		}
	}
}
