package child

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"
)

// BenchmarkStart is from the start of /bin/cat under its supervisor to the first byte that it returns; BenchmarkBareStart
// is the same without a supervisor. The difference is what a supervisor costs in time.
func BenchmarkStart(b *testing.B) {
	r := must(NewRunner(Options{}))
	for b.Loop() {
		p := must(r.Start(Spec{Server: "s", Path: "/bin/cat"}))
		fmt.Fprintln(p.Stdin, "x")
		must(p.Stdout.Read(make([]byte, 2)))
		b.StopTimer()
		p.Stop()
		<-p.Done()
		p.Stdout.Close()
		b.StartTimer()
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

// BenchmarkStderr is the cost of drowning out a server that floods its standard error.
func BenchmarkStderr(b *testing.B) {
	r := newStderrReader(-1, func(string) {})
	block := bytes.Repeat([]byte("a line of no particular interest to anybody who reads it\n"), 64)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		r.lines.write(block)
	}
}
