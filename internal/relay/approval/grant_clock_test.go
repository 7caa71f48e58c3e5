package approval

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// steps are what happens to the clocks while a grant is in force.
var steps = map[string]func(wall *time.Time, elapsed *time.Duration){
	"nothing":        func(*time.Time, *time.Duration) {},
	"ten minutes":    func(w *time.Time, e *time.Duration) { *w, *e = w.Add(10*time.Minute), *e+10*time.Minute },
	"an hour":        func(w *time.Time, e *time.Duration) { *w, *e = w.Add(time.Hour), *e+time.Hour },
	"set back":       func(w *time.Time, _ *time.Duration) { *w = w.Add(-time.Hour) },
	"set back a bit": func(w *time.Time, _ *time.Duration) { *w = w.Add(-time.Second) },
	"set forward":    func(w *time.Time, _ *time.Duration) { *w = w.Add(40 * time.Minute) },
}

// TestAClockNeverLengthensAGrant: whatever three things happen, a grant for an hour is not in
// force after more than an hour. It is in force before if the clock was not set.
func TestAClockNeverLengthensAGrant(t *testing.T) {
	t.Parallel()
	for a, first := range steps {
		for b, second := range steps {
			for c, third := range steps {
				d := openDesk(t)
				elapsed, begun := 5*time.Hour, 5*time.Hour
				d.o.Elapsed = func() time.Duration { return elapsed }
				granted := d.now
				d.grantHour()
				for _, step := range []func(*time.Time, *time.Duration){first, second, third} {
					step(&d.now, &elapsed)
				}
				passed, shown := elapsed-begun, d.now.Sub(granted)
				force := len(d.Grants()) == 1
				answer, err := d.ask(fmt.Sprintf(`{"i":"%s %s %s"}`, a, b, c))
				if used := answer.Approval != nil; used != force || err != nil {
					t.Errorf("%s, %s, %s: listed %v, used %v, %v", a, b, c, force, used, err)
				}
				if want := passed <= time.Hour && shown <= time.Hour; force != want {
					t.Errorf("%s, %s, %s: in force is %v after %v, want %v", a, b, c, force, passed, want)
				}
			}
		}
	}
}

// TestASavedGrantGoesOnForItsRest: a grant that a new run reads is in force for what was left of
// it at most, and not at all if the clock reads a time before it was made.
func TestASavedGrantGoesOnForItsRest(t *testing.T) {
	t.Parallel()
	made := time.Now().Round(0)
	saved := []Grant{{ID: "a", Granted: made, Expires: made.Add(time.Hour)}, {ID: "b", Granted: made}}
	for at, left := range map[time.Duration]time.Duration{0: time.Hour, 50 * time.Minute: 10 * time.Minute, time.Hour + 1: -1, -time.Minute: -1} {
		now, elapsed := made.Add(at), time.Duration(0)
		q := New(Options{Now: func() time.Time { return now }, Elapsed: func() time.Duration { return elapsed }}, saved)
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{max(left, 0), 1}, {left + 1, 0}} {
			if elapsed = c.after; left < 0 {
				c.want = 0
			}
			now = made.Add(at)
			if n := len(q.Grants()); n != c.want+1 && at >= 0 { // and the one without an end
				t.Errorf("read %v after it was made, %v later: %d are in force, want %d", at, c.after, n, c.want+1)
			}
		}
		if n := len(q.Grants()); n != 1 {
			t.Errorf("read %v after it was made: %d are in force at the end, want the one without an end", at, n)
		}
	}
}

// grantHour makes a grant for an hour by an approval.
func (d *desk) grantHour() {
	d.t.Helper()
	a, err := d.ask("{}")
	if err == nil {
		err = d.Settle(principal.New("uid:1"), a.Pending, "", Verdict{Approve: true, For: Hour})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// TestTheClockOfElapsedTimeGoesOn: it never goes back, and follows the time that passes.
func TestTheClockOfElapsedTimeGoesOn(t *testing.T) {
	t.Parallel()
	clock := New(Options{}, nil).o.Elapsed
	begun, first := time.Now(), clock()
	for clock() == first {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("it stands still")
		}
	}
	if took := clock() - first; took < 0 || took > time.Since(begun)+time.Second {
		t.Errorf("it went on by %v in %v", took, time.Since(begun))
	}
}
