package process

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/overload"
)

// A server that takes more memory than it may is ended with everything that it started, and the reason is known: on its
// own heap, shared with others, through many small processes, or in files and segments that no process maps. Each
// variant first tries to starve the processes that watch it.
func TestAllocatorIsEnded(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		for _, kind := range []string{"heap", "shared", "children", "memfd", "segments"} {
			began := time.Now()
			said := s.glutton(who, Sandbox{Mode: Contain, Limits: Limits{Memory: 96 << 20}}, kind, "800")
			if !strings.HasPrefix(said["ended"], "ended for exceeding its memory limit: ") || !strings.HasSuffix(said["ended"], " of 96 MiB") {
				t.Errorf("%s: %v", kind, said)
			}
			if took := time.Since(began); took > 20*time.Second+overload.Late() {
				t.Errorf("%s: ended after %v", kind, took)
			}
			s.none(2 * time.Second)
		}
	})
}

// Files in a server's own /tmp count towards its memory limit: writing fails, or the server is ended.
func TestFilesInMemoryAreMemory(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		said := s.glutton(who, Sandbox{Mode: Contain, Limits: Limits{Memory: 96 << 20}}, "files", "800")
		if said["files"] != "ENOSPC" && !strings.HasPrefix(said["ended"], "ended for exceeding its memory limit: ") {
			t.Errorf("%v", said)
		}
	})
}

// A server within its limits is not ended.
func TestModestServersLive(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		said := s.glutton(who, Sandbox{Mode: Contain, Limits: Limits{Memory: 1 << 30, Processes: 200}}, "heap", "150")
		if said["heap"] != "done" || said["ended"] != "exit status 0" {
			t.Errorf("%v", said)
		}
	})
}

// A fork bomb is stopped by its limit: by the kernel where that counts this namespace alone, and otherwise the server
// is ended.
func TestForkBombMeetsItsLimit(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		said := s.glutton(who, Sandbox{Mode: Contain, Limits: Limits{Processes: 60}}, "bomb", "2000")
		if who.root() {
			if !strings.HasPrefix(said["ended"], "ended for exceeding its process limit: ") || !strings.HasSuffix(said["ended"], " of 60") {
				t.Errorf("%v", said)
			}
		} else if said["bomb"] != "EAGAIN" || said["ended"] != "exit status 0" {
			t.Errorf("%v", said)
		}
		s.none(2 * time.Second)
	})
}

// A limit of processes counts one server, not all servers of a user: two can have as many each.
func TestLimitsAreEachServersOwn(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	who := s.user()
	box := Sandbox{Mode: Contain, Limits: Limits{Processes: 80}}
	s.warden(who, order{Path: who.self(), Args: []string{"as-glutton", "sleepers", "60"}, Sandbox: box})
	said := s.glutton(who, box, "sleepers", "60")
	if said["ended"] != "exit status 0" || said["sleepers"] != "60" {
		t.Errorf("%v", said)
	}
}

// glutton runs a server that wants more and more of something, up to a bound.
func (s *stage) glutton(who *inmate, box Sandbox, kind, bound string) map[string]string {
	s.t.Helper()
	return s.prison(who, order{Path: who.self(), Args: []string{"as-glutton", kind, bound}, Sandbox: box})
}

// asGlutton takes as much as it can get of one thing, at most bound (MiB, or processes).
func asGlutton(args []string) int {
	kind, bound := args[0], atoi(args[1])
	blindOthers()
	switch kind {
	case "heap":
		fmt.Println("heap:", takePrivate(bound))
	case "shared":
		fmt.Println("shared:", takeShared(bound))
	case "memfd":
		fmt.Println("memfd:", outcome("", fillMemfd(bound)))
	case "segments":
		fmt.Println("segments:", outcome("", fillSegments(bound)))
	case "children":
		for range bound / 20 {
			if err := exec.Command(self(), "as-glutton", "hold", "20").Start(); err != nil {
				return 1
			}
		}
		time.Sleep(20 * time.Second)
	case "hold":
		takePrivate(bound)
		time.Sleep(20 * time.Second)
	case "files":
		fmt.Println("files:", fillTmp(bound))
	case "bomb":
		fmt.Println("bomb:", outcome("", startSleepers(bound)))
	case "sleepers":
		if err := startSleepers(bound); err == nil {
			fmt.Println("sleepers:", bound)
		}
	}
	return 0
}

// blindOthers sets every limit of every process but this one to nothing, and gives them no processor where others want it.
func blindOthers() {
	for pid := range 100 {
		if pid == 0 || pid == os.Getpid() || pid == os.Getppid() && pid != 1 {
			continue
		}
		for limit := range 16 {
			_ = unix.Prlimit(pid, limit, &unix.Rlimit{}, nil)
		}
		_ = unix.Setpriority(unix.PRIO_PROCESS, pid, 19)
		_ = unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
	}
}

// takePrivate takes a chunk at a time, so slowly that the test depends on the limit and not on how fast it is noticed.
func takePrivate(most int) string {
	for range most / 4 {
		b, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err.Error()
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		time.Sleep(5 * time.Millisecond)
	}
	return "done"
}

func takeShared(most int) string {
	b, err := unix.Mmap(-1, 0, most<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		return err.Error()
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
		if i%(4<<20) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return "done"
}

// fillMemfd writes files in memory that it never maps.
func fillMemfd(most int) error {
	block := make([]byte, 1<<20)
	for range most / 4 {
		fd, err := unix.MemfdCreate("x", 0)
		if err != nil {
			return err
		}
		for range 4 {
			if _, err := unix.Write(fd, block); err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// fillSegments leaves shared memory behind that it has not mapped any more.
func fillSegments(most int) error {
	for range most / 4 {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4<<20, 0o600)
		if err != nil {
			return err
		}
		b, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		if err := unix.SysvShmDetach(b); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func fillTmp(most int) string {
	f, err := os.Create("/tmp/big")
	if err != nil {
		return outcome("", err)
	}
	block := make([]byte, 1<<20)
	for range most {
		if _, err := f.Write(block); err != nil {
			return outcome("", err)
		}
	}
	return "done"
}

func startSleepers(n int) error {
	for range n {
		if err := exec.Command("/bin/sleep", "1000").Start(); err != nil {
			return err
		}
	}
	time.Sleep(5 * time.Second) // beyond what a watch may take
	return nil
}
