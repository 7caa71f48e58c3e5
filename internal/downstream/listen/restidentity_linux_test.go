package listen

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// A connection that has rested serves its connector, and no child of it that holds the
// connection too.
func TestARestedConnectionServesItsConnectorAlone(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"ask": "HTTP/1.1 200 OK", "ask-by-a-child": "closed"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := openSocket(t, Options{Arrivals: newArrivals(t)})
			restful(t, l)
			p := start(t, nil, mode, l.Addr())
			if got := p.line(t); got != "HTTP/1.1 200 OK" {
				t.Fatalf("the connector itself: %s", got)
			}
			eventually(t, "the connection rests", func() bool { return l.atRest() == 1 })
			io.WriteString(p.in, "\n")
			if got := p.line(t); got != want {
				t.Errorf("after the rest: %s, want %s", got, want)
			}
			if want == "closed" {
				eventually(t, "the refusal is counted", func() bool { return l.Refused()[ReasonOtherWriter] == 1 })
			} else if len(l.Refused()) != 0 {
				t.Errorf("refused: %v", l.Refused())
			}
		})
	}
}

// A connection that rests ends with its connector, although a child of it still holds the
// connection.
func TestARestEndsWithTheConnector(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"ask-by-a-child", "ask-with-an-heir"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := openSocket(t, Options{Arrivals: newArrivals(t)})
			restful(t, l)
			p := start(t, nil, mode, l.Addr())
			if got := p.line(t); got != "HTTP/1.1 200 OK" {
				t.Fatal(got)
			}
			eventually(t, "the connection rests", func() bool { return l.atRest() == 1 })
			p.Process.Kill()
			eventually(t, "the connection ends", func() bool { return l.Open() == 0 && l.atRest() == 0 })
		})
	}
}

// A loopback connection that changes hands while it rests is served as little as one that does
// so between two requests.
func TestAConnectionThatChangesHandsWhileItRestsEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range verdicts {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{find: always(peer.Holder{PID: 7}, nil)}
			l := openLoopback(t, Options{Holders: s, Arrivals: newArrivals(t)})
			restful(t, l)
			raw := dialled(t, l)
			c := asking{raw, bufio.NewReader(raw)}
			c.get(t, aRequest)
			eventually(t, "the connection rests", func() bool { return l.atRest() == 1 })
			s.set(always(tc.holder, tc.err), false)
			for _, resting := range l.resting.old(time.Now()) {
				forget(l, resting)
			}
			io.WriteString(c, aRequest)
			_, err := http.ReadResponse(c.in, nil)
			if served := err == nil; served != (tc.later == "") {
				t.Errorf("served: %v (%v)", served, err)
			}
		})
	}
}
