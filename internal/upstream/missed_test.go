package upstream

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/wire"
)

// The owner of a connection that is too slow for the messages of its server learns, behind those
// that wait, that a change was dropped.
func TestADroppedChangeIsReported(t *testing.T) {
	t.Parallel()
	for dropped, want := range map[string]int{protocol.ToolsChanged: 1, methodLog: 0} {
		o := outlet{on: func(Event) {}, max: 1 << 20, held: true}
		for o.push(Event{Method: methodLog}) {
		}
		for range 2 {
			if o.push(Event{Method: dropped}) {
				t.Fatal("the event has room")
			}
		}
		missed, last := 0, Event{}
		for ev, ok := o.pop(); ok; ev, ok = o.pop() {
			if last = ev; ev.Missed {
				missed++
			}
		}
		if missed != want || last.Missed != (want == 1) {
			t.Errorf("%s: reported %d times, want %d, last %+v", dropped, missed, want, last)
		}
	}
}

// The same holds for a change that the receiver of a subscription is too slow for.
func TestADroppedChangeOfASubscriptionIsReported(t *testing.T) {
	t.Parallel()
	var s stream
	s.init(&Server{def: Definition{MaxMessage: 1 << 20}}, true, func(Event) {})
	c := takeCall(&Request{Method: methodListen}, func(Event) {}, 0, 0)
	if err := s.pending.add(c); err != nil {
		t.Fatal(err)
	}
	change := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"_meta":{%q:%d}}}`, protocol.ToolsChanged, wire.MetaSubscription, c.id)
	for range maxWaiting {
		if err := s.intake.accept([]byte(change), true); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.events.queue) != 0 {
		t.Fatalf("%d events are not those of the subscription", len(s.events.queue))
	}
	if err := s.intake.accept([]byte(change), true); err != nil {
		t.Fatal(err)
	}
	if ev, ok := s.events.pop(); !ok || !ev.Missed {
		t.Errorf("%+v, %v", ev, ok)
	}
}

// A status 400 of the stream ends a session that the server has forgotten, and no other. It is
// checked again after a check that has failed.
func TestA400OfTheStreamIsCheckedWithAPing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ping  func(http.ResponseWriter, fakeMessage)
		then  step
		ends  bool
		pings int // in two attempts
	}{
		"the session lives": {func(w http.ResponseWriter, m fakeMessage) { answerJSON(w, m.ID, "{}") }, again, false, 1},
		"the session is forgotten": {func(w http.ResponseWriter, _ fakeMessage) {
			writeJSON(w, 400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"x"},"id":null}`)
		}, over, true, 1},
		"the server fails": {func(w http.ResponseWriter, _ fakeMessage) { w.WriteHeader(503) }, again, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pings atomic.Int32
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.stream = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }
				f.call = func(w http.ResponseWriter, _ *http.Request, m fakeMessage) bool {
					if m.Method != methodPing {
						return false
					}
					pings.Add(1)
					c.ping(w, m)
					return true
				}
			})
			conn := dialLegacy(t, f.server(func(_ *Definition, d *Deps) { d.Log = slog.New(slog.DiscardHandler) }), nil).(*httpConn)
			l := &listener{c: conn, pause: firstPause}
			if then := l.once(); then != c.then {
				t.Errorf("what follows: %v, want %v", then, c.then)
			}
			if ended := conn.Err() != nil; ended != c.ends {
				t.Errorf("the connection has ended: %v", ended)
			}
			if !c.ends {
				l.once()
			}
			if n := int(pings.Load()); n != c.pings {
				t.Errorf("%d pings, want %d", n, c.pings)
			}
		})
	}
}
