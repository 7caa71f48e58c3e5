package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkStart is from the start of /bin/cat under its supervisor to the first byte that it returns, by the mode of
// its sandbox; BenchmarkBareStart is the same without a supervisor. The differences are what supervisor and sandbox
// cost in time.
func BenchmarkStart(b *testing.B) {
	for _, mode := range []string{Off, Contain, Strict} {
		b.Run(mode, func(b *testing.B) {
			r := must(NewRunner(Options{Self: os.Getenv("DOORWARD_BIN")})) // or this binary
			before := childrenCPU()
			defer func() { b.ReportMetric(float64(childrenCPU()-before)/1e6/float64(b.N), "cpu-ms/op") }()
			for b.Loop() {
				p := must(r.Start(Spec{Server: "s", Path: "/bin/cat", Sandbox: benchSandbox(mode)}))
				fmt.Fprintln(p.Stdin, "x")
				must(p.Stdout.Read(make([]byte, 2)))
				b.StopTimer()
				p.Stop()
				<-p.Done()
				p.Stdout.Close()
				b.StartTimer()
			}
		})
	}
}

// childrenCPU is the processor time of all children that have ended.
func childrenCPU() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

func benchSandbox(mode string) Sandbox {
	return Sandbox{Mode: mode, Limits: Limits{Memory: 2 << 30, Processes: 512, Files: 4096}}
}

// BenchmarkCall is one line to /bin/cat and back: what a sandbox costs a server that runs.
func BenchmarkCall(b *testing.B) {
	for _, mode := range []string{Off, Contain, Strict} {
		b.Run(mode, func(b *testing.B) {
			r := must(NewRunner(Options{}))
			p := must(r.Start(Spec{Server: "s", Path: "/bin/cat", Sandbox: benchSandbox(mode)}))
			defer p.Stdout.Close()
			defer p.Stop()
			line, answer := []byte("a line\n"), make([]byte, 16)
			for b.Loop() {
				must(p.Stdin.Write(line))
				must(p.Stdout.Read(answer))
			}
		})
	}
}

func BenchmarkBareStart(b *testing.B) {
	for b.Loop() {
		c := exec.Command("/bin/cat")
		in, out := must(c.StdinPipe()), must(c.StdoutPipe())
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		fmt.Fprintln(in, "x")
		must(out.Read(make([]byte, 2)))
		b.StopTimer()
		in.Close()
		_ = c.Wait()
		b.StartTimer()
	}
}

// BenchmarkStderr is the cost of the standard error of a server that floods it, most of which is withheld.
func BenchmarkStderr(b *testing.B) {
	r := newStderrReader(-1, func(string) {})
	block := bytes.Repeat([]byte("a line of no particular interest to anybody who reads it\n"), 64)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		r.lines.write(block)
	}
}
