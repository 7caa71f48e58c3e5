package deliver

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/test/doortest"
)

func TestAStreamTellsOfChanges(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	full, structural := d.fullToken(), d.structuralToken()
	l, other := d.listen(t, me, as(full)...), d.listen(t, me, as(structural)...)
	if h := l.res.Header; l.res.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || len(h.Get("Doorward-Revision")) != 64 {
		t.Fatalf("%d %v", l.res.StatusCode, h)
	}
	d.file("voice", "class: voice", "Write as a loud auctioneer.")
	d.look()
	now := d.do(me, "GET", "/auth/voice", "", as(full)...).header.Get("Doorward-Revision")
	if e := l.event(eventTime); e != `instructions.changed {"revision":"`+now+`"}` || now == l.res.Header.Get("Doorward-Revision") {
		t.Errorf("%s; the revision is %s", e, now)
	}
	// A reader that may not have the document does not learn that it changed.
	d.file("plan", "class: instructions\ntier: structural", "A plan has no table.")
	d.look()
	seen := d.do(me, "GET", "/auth/templates/plan", "", as(structural)...).header.Get("Doorward-Revision")
	if e := other.event(eventTime); e != `instructions.changed {"revision":"`+seen+`"}` {
		t.Errorf("the first event of the other: %s; want %s", e, seen)
	}
	if !strings.HasPrefix(l.event(eventTime), "instructions.changed ") {
		t.Error("the second change is not told")
	}
}

// A stream ends within five seconds after its session, however that ends, and its
// last event is session.revoked.
func TestAStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	for name, end := range map[string]func(token, id string){
		"by its holder":   func(token, _ string) { d.want(204, "", me, "DELETE", "/auth/session", "", as(token)...) },
		"by the operator": func(_, id string) { d.want(200, "", me, "POST", "/auth/admin/sessions/"+id+"/revoke", "") },
		"by its process": func(_, id string) {
			_, err := d.keeper.End(t.Context(), id, session.ReasonProcess, said)
			d.must(err)
		},
	} {
		for _, by := range []caller{me, loopback} {
			token, id := d.issue("uid:1000", document.Structural)
			l := d.listen(t, by, as(token)...)
			if l.res.StatusCode != 200 {
				t.Fatalf("%s: %d", name, l.res.StatusCode)
			}
			begun := time.Now()
			end(token, id)
			if e := l.event(eventTime); e != "session.revoked {}" {
				t.Errorf("%s: %s", name, e)
			}
			if e := l.event(eventTime); e != "" || time.Since(begun) > eventTime {
				t.Errorf("%s: %q after %v", name, e, time.Since(begun))
			}
			d.want(401, "unauthenticated", by, "GET", "/auth/events", "", as(token)...)
		}
	}
}

func TestAStreamEndsWithItsTime(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	var made Issued
	d.want(201, "", me, "POST", "/auth/session", `{"ttl_s":1}`).into(t, &made)
	l := d.listen(t, me, as(made.Token)...)
	if e := l.event(session.Tolerance + 2*eventTime); e != "session.revoked {}" {
		t.Errorf("%s", e)
	}
}

// The stream of a bearer token, which has no session, ends when the token is no
// longer valid. The stream of a session ends when policy takes the right to listen.
func TestAStreamEndsWithItsTokenOrItsRight(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	token := d.structuralToken()
	remote, job, held := d.listen(t, loopback, as(bearerCI)...), d.listen(t, me, as(bearerCI)...), d.listen(t, me, as(token)...)
	d.lose("token:ci")
	for _, l := range []*listening{remote, job} {
		if e := l.event(eventTime); e != "session.revoked {}" || l.event(eventTime) != "" {
			t.Errorf("%s", e)
		}
	}
	d.gate.SetPolicy(d.rules(`@id("deaf") forbid (principal, action == Action::"instructions.events", resource);`))
	if e := held.event(eventTime); e != "session.revoked {}" {
		t.Errorf("%s", e)
	}
	d.want(403, "not_permitted", me, "GET", "/auth/events", "", as(token)...)
}

func TestAStreamIsOneActWithOneEnd(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{limits: gate.Limits{Streams: 1}})
	token, id := d.issue("uid:1000", document.Structural)
	l := d.listen(t, me, as(token)...)
	if r := d.want(503, "unavailable", me, "GET", "/auth/events", "", as(token)...); r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	d.end(id)
	l.event(eventTime)
	doortest.Until(t, 20*time.Second, "the outcome", func() bool {
		lines := d.records()
		last := lines[len(lines)-1]
		return last.Kind == audit.Outcome && last.Action == actionEvents && last.Result == "revoked" && last.Bytes > 0
	})
	again := d.structuralToken()
	second := d.listen(t, me, as(again)...)
	second.cancel()
	doortest.Until(t, 20*time.Second, "the outcome of one that left", func() bool {
		lines := d.records()
		return lines[len(lines)-1].Result == "left"
	})
	d.s.Close()
	closed := d.listen(t, me, as(again)...)
	if e := closed.event(eventTime); e != "" {
		t.Errorf("of a daemon that ends: %s", e)
	}
}

// A stream whose client reads nothing delays neither the library nor the events
// of another stream.
func TestASlowReaderDelaysNoOtherReader(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	token := d.structuralToken()
	w := &stuck{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), waits: make(chan struct{}), end: make(chan struct{})}
	over, looked := make(chan struct{}), make(chan struct{})
	close(looked)
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequest("GET", "/auth/events", nil).WithContext(ctx)
	r.Header = d.request(me, "GET", "/auth/events", "", as(token)...).Header
	go func() { defer close(over); d.ServeHTTP(w, r) }()
	t.Cleanup(func() { close(w.end); <-looked; cancel(); <-over })
	within(t, "the stream begins", w.begun)
	l := d.listen(t, me, as(token)...)
	for i := range 20 {
		d.file("plan", "class: instructions\ntier: structural", strings.Repeat("x", i+1))
		looked = make(chan struct{})
		go func() { defer close(looked); d.look() }()
		within(t, "the daemon's work", looked)
		if e := l.event(eventTime); !strings.HasPrefix(e, "instructions.changed ") {
			t.Fatalf("%s", e)
		}
	}
	within(t, "the other stream waits for its reader", w.waits)
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it never came to this: ", what)
	}
}

// stuck is the connection of a reader who takes the beginning of a stream and nothing more.
type stuck struct {
	*httptest.ResponseRecorder
	begun, waits, end chan struct{}
	writes            int
}

func (s *stuck) SetWriteDeadline(time.Time) error { return nil }

func (s *stuck) Write(b []byte) (int, error) {
	switch s.writes++; s.writes {
	case 1:
		close(s.begun)
	case 2:
		close(s.waits)
		<-s.end
	}
	return len(b), nil
}
