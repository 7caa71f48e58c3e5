package process

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/overload"
)

// longList is a list of paths that makes a plan longer than a pipe.
func longList() []string {
	var all []string
	for i := range 3000 {
		all = append(all, fmt.Sprintf("/nonexistent/directory/with/a/long/name/%d", i))
	}
	return all
}

// TestALongPlanArrives: a server starts, however long its configuration makes the plan.
func TestALongPlanArrives(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{Contain, Strict} {
		for _, form := range []string{"own", sealedForm} {
			s := newStage(t, Options{Image: imageOf(form)})
			s.mode, s.form = mode, form
			begun := time.Now()
			p := s.start(Spec{Path: "/bin/sh", Args: []string{"-c", "echo here"}, Sandbox: Sandbox{Listed: longList()}})
			s.expect(p, "here")
			if took := time.Since(begun); took > reportPatience/2+overload.Late() {
				t.Errorf("%s %s: it took %v", mode, form, took)
			}
		}
	}
}

// TestHandOverThroughASmallPipe: a plan passes through a pipe of one page as it is read, and a reader that is gone ends
// the wait at once.
func TestHandOverThroughASmallPipe(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{1 << 30, 10000, 1, 0} {
		r, w, err := closeOnExecPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SetNonblock(w, true); err != nil {
			t.Fatal(err)
		}
		shrink(w)
		plan := &plan{Sandbox: Sandbox{Mode: Contain, Listed: longList()}}
		got := make(chan string, 1)
		go func() {
			f := os.NewFile(uintptr(r), "plan")
			b, _ := io.ReadAll(io.LimitReader(f, most))
			f.Close()
			got <- string(b)
		}()
		p := &Process{control: w, report: &reportReader{}}
		begun := time.Now()
		p.handOver(plan)
		if took := time.Since(begun); took > reportPatience/2+overload.Late() {
			t.Errorf("a reader of %d bytes: it took %v", most, took)
		}
		p.closeControl()
		text, whole := <-got, plan.String()+"\x00"
		if most > int64(len(whole)) {
			if err := p.report.unsent; text != whole || err != nil {
				t.Errorf("%d bytes of %d arrived, %v", len(text), len(whole), err)
			}
		} else if err := p.report.first(); err == nil {
			t.Errorf("a reader of %d bytes: no error", most)
		}
	}
}
