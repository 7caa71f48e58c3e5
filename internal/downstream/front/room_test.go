package front

import (
	"math"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// A new session of a principal at its limit replaces the longest idle of its own sessions.
// A session that was used a moment ago, listens or has a call under way is not replaced, and
// neither is one of another principal.
func TestTheLongestIdleSessionMakesRoom(t *testing.T) {
	t.Parallel()
	table := newSessions(10, func(*principal.Principal) int { return 3 }, time.Hour)
	ann, bob := principal.New("token:ann"), principal.New("token:bob")
	begin := time.Now()
	table.now = func() time.Time { return begin }
	open := func(who *principal.Principal) *Session {
		t.Helper()
		if rule := table.reserve(who); rule != "" {
			t.Fatalf("refused by %s", rule)
		}
		s := newSession(newSessionID(), who, "", overStreamable, table.now())
		s.most = 1
		table.publish(s)
		return s
	}
	other, listens, calls, idle := open(bob), open(ann), open(ann), open(ann)
	listens.readers.Add(1)
	if err := calls.enter([]byte("1"), func() {}); err != nil {
		t.Fatal(err)
	}
	if rule := table.reserve(ann); rule != RulePerPrincipal {
		t.Errorf("a session of a moment ago made room: %q", rule)
	}
	table.now = func() time.Time { return begin.Add(2 * leftAfter) }
	fresh := open(ann)
	if table.find(idle.id, ann, "", overStreamable) != nil || idle.Context().Err() == nil {
		t.Error("the idle session is still there")
	}
	for _, s := range []*Session{listens, calls, fresh} {
		if table.find(s.id, ann, "", overStreamable) == nil {
			t.Error("another session made room")
		}
	}
	if rule := table.reserve(ann); rule != RulePerPrincipal || table.find(other.id, bob, "", overStreamable) == nil {
		t.Errorf("room for a fifth: %q", rule)
	}
}

// A principal without a bound of its own has as many sessions as the door has.
func TestSessionsWithoutABound(t *testing.T) {
	t.Parallel()
	o := Options{SessionsPerPrincipal: 1, Bounds: func(who *principal.Principal) (int, int) {
		if who.Name() == "uid:1000" {
			return math.MaxInt, math.MaxInt
		}
		return 1, 1
	}}
	table := newSessions(5, o.each, time.Hour)
	own := principal.New("uid:1000")
	for i := range 5 {
		if rule := table.reserve(own); rule != "" {
			t.Fatalf("session %d was refused by %s", i, rule)
		}
	}
	if rule := table.reserve(own); rule != RuleSessions {
		t.Errorf("one more than there may be at all: %q", rule)
	}
}
