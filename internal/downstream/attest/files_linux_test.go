package attest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dirWith returns an open directory with one file, in the place of a directory of /proc. No
// text means no file.
func dirWith(t *testing.T, name, text string) *os.File {
	t.Helper()
	path := t.TempDir()
	if text != "" {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

func TestEndedReadsTheState(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"7 (x) S 1": false, "7 (x) R 1": false, "7 (Z) S 1": false, "7 (x) Z) D 1": false,
		"7 (x) Z 1": true, "7 (x) X 1": true, "7 (x) x 1": true,
		"7 (x)": true, "7": true, "": true,
	} {
		if got := ended(dirWith(t, "stat", text)); got != want {
			t.Errorf("%q has ended: %v", text, got)
		}
	}
}

func TestEffectiveUIDIsTheSecondOfItsLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want uint32
		ok   bool
	}{
		{"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n", 2, true},
		{"Uid:\t1 4294967294\n", 4294967294, true},
		{"Name:\tUid: 1 2\n", 0, false},
		{"Uid:\t1\n", 0, false},
		{"Uid:\n", 0, false},
		{"Uid:\t1\tx\n", 0, false},
		{"Uid:\t1\t4294967296\n", 0, false},
		{"\n", 0, false},
		{"", 0, false},
	} {
		got, err := effectiveUID(dirWith(t, "status", c.text))
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("%q: %d, %v", c.text, got, err)
		}
	}
}

func TestStatFields(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"7 (x) S 1 2": "S 1 2", "7 (a) R) S 1": "S 1", ") S": "S", "7 ()S": "S", "7 (x)": "", "7 S": "", "": "",
	} {
		var got []string
		for _, f := range StatFields([]byte(text)) {
			got = append(got, string(f))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestStartIsTheTwentiethField(t *testing.T) {
	t.Parallel()
	fields := func(n int) string {
		text := "7 (x)"
		for i := range n {
			text += " " + strconv.Itoa(100+i)
		}
		return text
	}
	for _, n := range []int{20, 21, 49} {
		if got, err := StartOf([]byte(fields(n))); got != 119 || err != nil {
			t.Errorf("%d fields: %d, %v", n, got, err)
		}
	}
	for _, text := range []string{fields(19), fields(0), "", strings.Replace(fields(20), "119", "x", 1)} {
		if got, err := StartOf([]byte(text)); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestOverflowUIDIsTheKernels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint32{"65534\n": 65534, "1234\n": 1234, "": 65534, "x\n": 65534, "4294967296\n": 65534} {
		if got := overflowIn([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestBootIDIsTheKernels(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip(err)
	}
	if got := BootID(); got != strings.TrimSpace(string(text)) {
		t.Errorf("%q, the kernel has %q", got, text)
	}
}

// TestInstanceNamesTheProcess: by the inode of a pidfd that has one of its own, otherwise by
// pid and start time, which is not attested.
func TestInstanceNamesTheProcess(t *testing.T) {
	t.Parallel()
	own := int32(os.Getpid())
	pidfd, err := unix.PidfdOpen(int(own), 0)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(pidfd)
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(pidfd, &fs), unix.Fstat(pidfd, &st)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	composed := BootID() + "/" + strconv.Itoa(int(own)) + "@" + strings.Fields(string(text[slices.Index(text, ')')+1:]))[19]
	if fs.Type == unix.PID_FS_MAGIC {
		if got, attested := instanceOfPidfd(pidfd, own); !attested || got != BootID()+"/"+strconv.FormatUint(st.Ino, 10) {
			t.Errorf("a pidfd: %q, attested %v", got, attested)
		}
	}
	other := int(dirWith(t, "x", "").Fd())
	if got, attested := instanceOfPidfd(other, own); attested || got != composed {
		t.Errorf("a descriptor without an inode of its own: %q, attested %v; want %q", got, attested, composed)
	}
	if got, attested := instanceOfPidfd(other, 1<<30); attested || got != "" {
		t.Errorf("no such process: %q, attested %v", got, attested)
	}
}
