package upstream

import (
	"strings"
	"testing"
)

// The end of a process that was used is known with its own last words, until a process that was
// started later has answered a call.
func TestAFallIsKnownUntilALaterProcessAnswers(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	early, c := dialLegacy(t, s, nil), dialLegacy(t, s, nil)
	mustCall(t, early, tool("complain"), nil)
	c.Call(testContext(t), tool("crash"), nil)
	waitDone(t, c)
	mustCall(t, early, tool("echo"), nil)
	f := Fallen(s)
	if f == nil || f.Reason != "exit status 6" || !f.Calls || f.Count != 1 || len(f.Lines()) != 0 {
		t.Fatalf("%+v", f)
	}
	mustCall(t, early, tool("complain"), nil)
	early.Call(testContext(t), tool("crash"), nil)
	waitDone(t, early)
	if f := Fallen(s); f == nil || f.Count != 2 || strings.Join(f.Lines(), "|") != "oh no|oh no" {
		t.Errorf("%+v", f)
	}
	later := dialInTime(t, s)
	later.Call(testContext(t), &Request{Method: "tools/list"}, nil)
	if Fallen(s) == nil {
		t.Error("a list ended it")
	}
	mustCall(t, later, tool("echo"), nil)
	if f := Fallen(s); f != nil {
		t.Errorf("after an answer: %+v", f)
	}
}

// A process that Doorward ends for what it does has fallen too, and nothing that it said is the
// reason. One that Doorward ends because it is not needed has not, also by a signal.
func TestAFallIsNoEndThatWasAskedFor(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	c := dialLegacy(t, s, nil)
	c.Call(testContext(t), tool("raw", `"line":`+quote(strings.Repeat(`{"jsonrpc":"topsecret","method":1}`+"\n", maxBad+1))), nil)
	waitDone(t, c)
	if f := Fallen(s); f == nil || !f.Calls || !strings.Contains(f.Reason, "broke the protocol") || strings.Contains(f.Reason, "topsecret") {
		t.Errorf("%+v", f)
	}
	s = fake(t, "plain")
	c = dialLegacy(t, s, nil)
	mustCall(t, c, tool("stop-reading"), nil) // only a signal ends it
	c.Close()
	eventually(t, "its end is known", func() bool { end, _ := s.LastWords(); return end != "" })
	if f := Fallen(s); f != nil {
		t.Errorf("%+v", f)
	}
}
