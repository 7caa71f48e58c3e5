// Count runs `go test -json` with the given arguments and prints the output of each failed test,
// every skipped test with its reason, the log lines of tests after "measured: ", and a last line
// with the totals. If CI is set, a skipped test fails the run: it counts as missing, never as
// passed.
//
// With `-skips FILE` in front of the arguments, the listed tests may be skipped, and must be: a
// listed test that ran or does not exist also fails the run, so that the list stays correct. See
// skips.go.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
	ImportPath                    string
}

type totals struct {
	passed, failed, skipped int
	output                  map[string][]string // by package and test
	broken                  bool                // a package that failed to build or to end normally
	skips                   skips
	ran                     map[string]bool // packages
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	start := time.Now()
	allowed, args, err := cutSkips(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		return 2
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "count: starting go test:", err)
		return 1
	}
	t := &totals{output: make(map[string][]string), skips: allowed, ran: make(map[string]bool)}
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 1<<20), 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text())
			continue
		}
		t.take(e)
	}
	err = cmd.Wait()
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	fmt.Fprintf(os.Stderr, "in %s\n", time.Since(start).Round(time.Second))
	switch {
	case err != nil || t.failed > 0 || t.broken:
		return 1
	case t.passed == 0:
		fmt.Println("no test was executed")
		return 1
	case os.Getenv("CI") != "" && t.skips.of(t.ran).unexpected(t.skipped):
		return 1
	}
	return 0
}

func (t *totals) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		t.output[key] = append(t.output[key], e.Output)
		if _, figure, found := strings.Cut(e.Output, "measured: "); found {
			fmt.Printf("%s: %s", e.Test, figure)
		}
	case "build-output":
		fmt.Print(e.Output)
	case "pass":
		t.end(e, key, &t.passed)
	case "fail":
		fmt.Print(strings.Join(t.output[key], ""))
		if e.Test == "" {
			t.broken = true
			t.unfinished(e.Package)
		}
		t.end(e, key, &t.failed)
	case "skip":
		if e.Test != "" {
			fmt.Printf("skipped%s: %s: %s\n", t.skips.take(key), key, reason(t.output[key]))
		}
		t.end(e, key, &t.skipped)
	}
}

// unfinished prints the output of the tests of a package that have not ended: the end of the
// process, such as a time limit, is among it.
func (t *totals) unfinished(pkg string) {
	for _, key := range slices.Sorted(maps.Keys(t.output)) {
		if strings.HasPrefix(key, pkg+" ") && key != pkg+" " {
			fmt.Print("not ended: ", key, "\n", strings.Join(t.output[key], ""))
		}
	}
}

// end counts a test, or prints the time of a package.
func (t *totals) end(e event, key string, n *int) {
	delete(t.output, key)
	if e.Test != "" {
		*n++
		return
	}
	t.ran[e.Package] = true
	if e.Action != "skip" {
		fmt.Printf("%-4s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
	}
}

// reason returns the text passed to t.Skip.
func reason(output []string) string {
	for i := len(output) - 1; i >= 0; i-- {
		line := strings.TrimSpace(output[i])
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}
