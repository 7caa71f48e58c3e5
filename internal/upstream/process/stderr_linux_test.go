package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStderrArrivesBeforeDone(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	var e ear
	p := s.start(Spec{Path: "/bin/sh", Args: []string{"-c", `echo one >&2; printf '\033[31mtwo\a\n\nlast' >&2`}, Stderr: e.hear})
	if err := s.end(p, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one", `\u001b[31mtwo\u0007`, "", "last"}, e.all()); diff != "" {
		t.Fatal(diff)
	}
	if n, withheld := p.StderrCount(); n != 4+10+1+4 || withheld != 0 {
		t.Fatalf("counted %d, %d", n, withheld)
	}
}

func TestStderrFloodIsDrainedAndCut(t *testing.T) {
	t.Parallel()
	for kind, check := range map[string]func(t *testing.T, p *Process, lines []string){
		"lines": func(t *testing.T, p *Process, lines []string) {
			total := 30 << 14
			_, withheld := p.StderrCount()
			if len(lines) < linesPerMinute || len(lines) > 4*linesPerMinute || withheld < int64(total-3*linesPerMinute) {
				t.Fatalf("%d lines delivered, %d withheld of %d", len(lines), withheld, total)
			}
			if last := lines[len(lines)-1]; !strings.Contains(last, "withheld") {
				t.Fatalf("the last line is %q", last)
			}
		},
		"endless": func(t *testing.T, p *Process, lines []string) {
			if len(lines) != 1 || lines[0] != strings.Repeat("x", maxLine)+" (cut)" {
				t.Fatalf("%d lines delivered", len(lines))
			}
		},
	} {
		for _, heard := range []bool{true, false} {
			t.Run(fmt.Sprint(kind, heard), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, Options{Stdin: time.Minute})
				var e ear
				spec := Spec{Path: self(), Args: []string{"as-flood", "30", kind}}
				if heard {
					spec.Stderr = e.hear
				}
				p := s.start(spec)
				s.expect(p, "flooded")
				p.Stop()
				if err := s.end(p, 5*time.Second); err != nil {
					t.Fatal(err)
				}
				if !heard {
					return // the null device took it
				}
				if n, _ := p.StderrCount(); n != 30<<20 {
					t.Fatalf("counted %d bytes", n)
				}
				check(t, p, e.all())
			})
		}
	}
}
