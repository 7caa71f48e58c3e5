package approval

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestTheElapsedTimeNeedsNoDescriptor: the clock of grants goes on when no file can be opened.
// The limit is set in a process of its own.
func TestTheElapsedTimeNeedsNoDescriptor(t *testing.T) {
	const alone = "DOORWARD_TEST_NO_DESCRIPTOR"
	if os.Getenv(alone) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	clock := elapsed()
	before := clock()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{}); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(os.DevNull); err == nil {
		t.Fatalf("%s can be opened", f.Name())
	}
	if passed := clock() - before; passed < 0 || passed > 10*time.Minute {
		t.Errorf("the clock reads %v after %v", before+passed, before)
	}
}
