package agent

import (
	"strconv"
	"testing"
	"time"
)

// emptied returns the records of calls of one tool that found nothing.
func (h *house) emptied(tool string) (out []entry) {
	for _, l := range h.lines() {
		if l.Resource == ServerName+"/"+tool && l.Decision == "allow" && l.Detail["given"] == "0" && l.Detail["confirmed"] == "" {
			out = append(out, l)
		}
	}
	return out
}

// The first call of a session that finds nothing has a record at once; the following ones are
// counted in one record a minute. A call that finds something has a record of its own.
func TestCallsThatFindNothingAreSummedUp(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	for range 7 {
		a.call("inbox", m{}).want("")
		a.call("wait", m{"wait_ms": 10}).want("")
	}
	b.call("inbox", m{"wait_ms": 10}).want("")
	if got := h.emptied("inbox"); len(got) != 2 || got[0].Count != 0 || got[0].Detail["peer"] == "" || got[0].Session == got[1].Session {
		t.Errorf("inbox, at once: %+v", got)
	}
	if got := h.emptied("wait"); len(got) != 1 || got[0].Detail["ended"] != "timeout" {
		t.Errorf("wait, at once: %+v", got)
	}
	h.s.lulls.flush(time.Now().Add(sumTime/2), false)
	if n := len(h.emptied("inbox")); n != 2 {
		t.Errorf("%d records before the minute is over", n)
	}
	h.s.lulls.flush(farFuture, false)
	if got := h.emptied("inbox"); len(got) != 3 || got[2].Count != 6 || got[2].Session != got[0].Session || got[2].Rule != got[0].Rule {
		t.Errorf("inbox, summed up: %+v", got)
	}
	if got := h.emptied("wait"); len(got) != 2 || got[1].Count != 6 || milliseconds(t, got[1].Detail["waited_ms"]) < 6*10 {
		t.Errorf("wait, summed up: %+v", got)
	}
	b.call("send", m{"to": "a", "body": "x"}).want("")
	before := len(h.lines())
	a.call("inbox", m{}).want("")
	if got := h.lines(); len(got) != before+1 || got[before].Detail["given"] != "1" {
		t.Errorf("an inbox with mail: %+v", got[before:])
	}
	h.s.lulls.flush(farFuture, false)
	h.s.lulls.flush(farFuture.Add(time.Hour), false)
	if n := len(h.s.lulls.open); n != 0 {
		t.Errorf("%d sessions without further calls are kept", n)
	}
}

func milliseconds(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// After a summary could not be written, calls that find nothing are refused like any call
// without a record, so none is answered for more than a minute without one.
func TestASummaryThatCannotBeWrittenEndsTheSummingUp(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	a.call("inbox", m{}).want("")
	a.call("inbox", m{}).want("")
	if err := h.log.Close(); err != nil {
		t.Fatal(err)
	}
	h.s.lulls.flush(farFuture, false)
	a.call("inbox", m{}).want("AUDIT_UNAVAILABLE")
	a.call("inbox", m{}).want("AUDIT_UNAVAILABLE")
}

// A stop writes the summaries. A call after it has a record of its own.
func TestAStopWritesTheSummaries(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	for range 3 {
		a.call("inbox", m{}).want("")
	}
	h.s.lulls.flush(time.Now(), true)
	if got := h.emptied("inbox"); len(got) != 2 || got[1].Count != 2 {
		t.Errorf("%+v", got)
	}
	a.call("inbox", m{}).want("")
	a.call("inbox", m{}).want("")
	if got := h.emptied("inbox"); len(got) != 4 {
		t.Errorf("after the stop: %+v", got)
	}
}
