package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// asEcho answers every line with itself and ends with standard input.
func asEcho([]string) int {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(in.Text())
	}
	return 0
}

// asStubborn ignores whatever can be ignored.
func asStubborn([]string) int {
	signal.Notify(make(chan os.Signal, 1))
	fmt.Println("ready")
	for {
		time.Sleep(time.Hour)
	}
}

// asParent has n stubborn grandchildren in sessions of their own, whose parents are gone, and then does as args say.
func asParent(args []string) int {
	n, _ := strconv.Atoi(args[0])
	for range n {
		if err := exec.Command(self(), "as-middle").Run(); err != nil {
			log.Print(err)
			return 1
		}
	}
	fmt.Println("ready")
	switch args[1] {
	case "stay":
		return asStubborn(nil)
	case "echo":
		return asEcho(nil)
	}
	status, _ := strconv.Atoi(args[1])
	return status
}

func asMiddle([]string) int {
	c := exec.Command(self(), "as-stubborn")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		log.Print(err)
		return 1
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

// asFlood writes n MiB of lines to standard error, or with "line" one line, and then says so.
func asFlood(args []string) int {
	n, _ := strconv.Atoi(args[0])
	block := bytes.Repeat([]byte("x"), 1<<20)
	if args[1] == "lines" {
		block = bytes.Repeat([]byte(strings.Repeat("y", 63)+"\n"), 1<<14)
	}
	for range n {
		if _, err := os.Stderr.Write(block); err != nil {
			return 1
		}
	}
	fmt.Println("flooded")
	return asEcho(nil)
}

// asPest sends its supervisor every signal but SIGKILL and SIGSTOP.
func asPest([]string) int {
	signal.Notify(make(chan os.Signal, 1))
	supervisor := os.Getppid()
	for sig := range syscall.Signal(65) {
		if sig == 0 || sig == unix.SIGKILL || sig == unix.SIGSTOP {
			continue
		}
		for range 20 {
			_ = unix.Kill(supervisor, sig)
		}
	}
	fmt.Println("done")
	return asEcho(nil)
}

// asDaemon stands in for the daemon: some servers with offspring, then it waits to be killed. With "hidden" it has made
// itself undumpable, as the daemon does.
func asDaemon(args []string) int {
	if len(args) > 0 {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			log.Print(err)
			return 1
		}
	}
	r, err := NewRunner(optionsOfRole())
	if err != nil {
		log.Print(err)
		return 1
	}
	for range 4 {
		p, err := r.Start(Spec{Server: "s", Path: self(), Args: []string{"as-parent", "3", "stay"}, Env: os.Environ(), Sandbox: modeOfRole()})
		if err != nil {
			log.Print(err)
			return 1
		}
		if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
			log.Print(err)
			return 1
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// asBusyDaemon starts and stops children without pause until it is killed.
func asBusyDaemon([]string) int {
	o := optionsOfRole()
	o.Max = 8
	r, err := NewRunner(o)
	if err != nil {
		log.Print(err)
		return 1
	}
	for range 8 {
		go func() {
			for {
				p, err := r.Start(Spec{Server: "s", Path: "/bin/sh", Args: []string{"-c", "setsid sleep 1000 & wait"}, Env: os.Environ(), Sandbox: modeOfRole()})
				if err == nil {
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					p.Kill()
					<-p.Done()
				}
			}
		}()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// manyThreads has the runtime make threads, which it keeps: one that it wants later may not be had. They are idle on
// return, because a thread that is not idle yet does not count.
func manyThreads() {
	var all, left sync.WaitGroup
	all.Add(16)
	hold := make(chan struct{})
	for range 16 {
		left.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			<-hold
		})
	}
	all.Wait()
	close(hold)
	left.Wait()
}

// asBesieged is a daemon whose server takes all the processes that its user may have.
func asBesieged([]string) int {
	manyThreads()
	limit := unix.Rlimit{Cur: 100, Max: 100}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		log.Print(err)
		return 1
	}
	r, err := NewRunner(optionsOfRole())
	if err != nil {
		log.Print(err)
		return 1
	}
	const bomb = `use POSIX; $| = 1; for (;;) { my $p = fork; unless (defined $p) { print "full\n"; sleep 1000 } POSIX::setsid unless $p }`
	p, err := r.Start(Spec{Server: "s", Path: "/usr/bin/perl", Args: []string{"-e", bomb}, Env: os.Environ(), Stderr: func(l string) { log.Print(l) }})
	if err != nil {
		log.Print(err)
		return 1
	}
	if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
		log.Print(err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	p.Kill()
	<-p.Done()
	fmt.Println(p.Err())
	return 0
}

// asMiser first forbids its supervisor every further thread. Then it has grandchildren and sends the supervisor
// signals.
func asMiser([]string) int {
	supervisor := os.Getppid()
	if err := unix.Prlimit(supervisor, unix.RLIMIT_NPROC, &unix.Rlimit{}, nil); err != nil {
		log.Print(err)
		return 1
	}
	for range 3 {
		c := exec.Command("/bin/sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & exit 0")
		if err := c.Run(); err != nil {
			log.Print(err)
			return 1
		}
		_ = unix.Kill(supervisor, unix.SIGCHLD)
	}
	fmt.Println("ready")
	return asEcho(nil)
}

// asMisersDaemon starts misers, ends them in several ways, and fails if one ends otherwise.
func asMisersDaemon(args []string) int {
	n, _ := strconv.Atoi(args[0])
	r, err := NewRunner(Options{Stdin: time.Minute})
	if err != nil {
		log.Print(err)
		return 1
	}
	ends := []func(*Process){(*Process).Stop, (*Process).Kill, func(p *Process) { _ = unix.Kill(p.PID(), unix.SIGTERM) }}
	wants := []string{"exit status 0", "exit status 137 (signal 9)", "exit status 143 (signal 15)"}
	for i := range n {
		p, err := r.Start(Spec{Server: "s", Path: self(), Args: []string{"as-miser"}, Env: os.Environ(), Stderr: func(l string) { log.Print(l) }})
		if err != nil {
			log.Print(err)
			return 1
		}
		if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); line != "ready\n" {
			log.Printf("round %d: the server said %q, %v", i, line, err)
			return 1
		}
		ends[i%3](p)
		<-p.Done()
		p.Stdout.Close()
		if got := statusText(p.Err()); got != wants[i%3] {
			log.Printf("round %d: %s, want %s", i, got, wants[i%3])
			return 1
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// asChurn starts and stops a great many children and says what is left of them.
func asChurn(args []string) int {
	n, _ := strconv.Atoi(args[0])
	r, err := NewRunner(Options{Stdin: time.Minute})
	if err != nil {
		log.Print(err)
		return 1
	}
	one := func() error {
		p, err := r.Start(Spec{Server: "s", Path: "/bin/cat", Env: []string{noNap}, Sandbox: modeOfRole()})
		if err != nil {
			return err
		}
		began := time.Now()
		p.Stop()
		<-p.Done()
		p.Stdout.Close()
		if p.Err() != nil {
			return fmt.Errorf("after %v: %w", time.Since(began), p.Err())
		}
		return nil
	}
	if err := one(); err != nil { // the poller and the pools are there from now on
		log.Print(err)
		return 1
	}
	goroutines, fds := runtime.NumGoroutine(), openFDs()
	for range n {
		if err := one(); err != nil {
			log.Print(err)
			return 1
		}
	}
	// The last waiter has closed Done and is about to return.
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("goroutines %d to %d, descriptors %d to %d, children %v\n",
		goroutines, runtime.NumGoroutine(), fds, openFDs(), children(os.Getpid()))
	if runtime.NumGoroutine() > goroutines || openFDs() > fds || len(children(os.Getpid())) > 0 {
		return 1
	}
	return 0
}

func openFDs() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// asCrowd holds many idle children at once and says what each costs: heap and stack bytes, threads, and the supervisor's
// own memory.
func asCrowd(args []string) int {
	n, _ := strconv.Atoi(args[0])
	r, err := NewRunner(Options{Max: n})
	if err != nil {
		log.Print(err)
		return 1
	}
	before := footprint()
	started := time.Now()
	var last *Process
	for range n {
		p, err := r.Start(Spec{Server: "s", Path: "/bin/cat", Env: []string{noNap}, Sandbox: modeOfRole(), Stderr: func(string) {}})
		if err != nil {
			log.Print(err)
			return 1
		}
		fmt.Fprintln(p.Stdin, "hello")
		if _, err := p.Stdout.Read(make([]byte, 6)); err != nil {
			log.Print(err)
			return 1
		}
		last = p
	}
	each := time.Since(started) / time.Duration(n)
	perChild := (footprint() - before) / int64(n)
	threads := len(must(os.ReadDir("/proc/self/task")))
	fmt.Printf("%d bytes a child, %d threads, %v a start\n", perChild, threads, each)
	fmt.Print(memoryOf(last.PID()))
	if err := r.Close(context.Background()); err != nil {
		log.Print(err)
		return 1
	}
	if perChild > 12<<10 || threads > 24 {
		return 1
	}
	return 0
}

func footprint() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func memoryOf(pid int) string {
	var out strings.Builder
	for _, file := range []string{"status", "smaps_rollup"} {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		for line := range strings.Lines(string(b)) {
			name, _, _ := strings.Cut(line, ":")
			if slices.Contains([]string{"RssAnon", "RssFile", "Threads", "Pss", "Private_Dirty"}, name) {
				out.WriteString("supervisor " + line)
			}
		}
	}
	return out.String()
}
