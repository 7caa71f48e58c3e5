package console

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/audit"
)

// ledger counts the recorded acts of a console, and the lists of messaging that were read.
type ledger struct {
	admin.Agents
	acts, listed, continued int
}

func (l *ledger) read(by agent.Caller) {
	if l.listed++; by.Continues {
		l.continued++
	}
}

func (l *ledger) Peers(_ context.Context, by agent.Caller) ([]agent.PeerInfo, error) {
	l.read(by)
	return nil, nil
}

func (l *ledger) Holds(_ context.Context, by agent.Caller) ([]agent.Message, error) {
	l.read(by)
	return nil, nil
}

func (l *ledger) Tail(_ context.Context, by agent.Caller, _ string, _ int64, _ int) (*agent.Tailed, error) {
	l.read(by)
	return &agent.Tailed{}, nil
}

func (l *ledger) Show(_ context.Context, by agent.Caller, _ string) (*agent.PeerInfo, error) {
	l.read(by)
	return &agent.PeerInfo{}, nil
}

func (l *ledger) Inbox(_ context.Context, by agent.Caller, _ string, _, _ bool) (*agent.Inbox, error) {
	l.read(by)
	return &agent.Inbox{}, nil
}

// recorded returns a console whose acts the ledger counts.
func recorded(t *testing.T) (*Console, *ledger) {
	t.Helper()
	l := &ledger{}
	c, err := New(Options{
		Enter:      func(context.Context, Caller, string) (func(), error) { l.acts++; return func() {}, nil },
		Allows:     func(context.Context, Caller, string) bool { return true },
		Status:     func() admin.Status { return admin.Status{} },
		Refusals:   func() map[string]uint64 { return nil },
		Checkpoint: func() (audit.Mark, bool) { return audit.Mark{}, false },
		Agents:     func() admin.Agents { return l },
		Seq:        func() uint64 { return 1 },
		AuditDir:   newActLog(t, newClock()).dir,
		Trust:      admin.Truster{List: func() []admin.Trust { return nil }},
		Policy:     func() string { return "" },
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, l
}

// visitor begins a session, and returns the function that requests a page of it, or a part.
func visitor(t *testing.T, c *Console) func(address string, part bool) {
	t.Helper()
	v := visit("127.0.0.1:7866", "/usr/bin/browser")
	code, _ := c.Issue(operator(), v.Listener)
	secret, _, err := c.sessions.redeem(code, v)
	if err != nil {
		t.Fatal(err)
	}
	return func(address string, part bool) {
		t.Helper()
		r := httptest.NewRequest("GET", Prefix+address, nil)
		r.Host = "localhost:7866"
		r.Header.Set("Cookie", cookieName(v)+"="+secret)
		if part {
			r.Header.Set("HX-Request", "true")
		}
		w := httptest.NewRecorder()
		if c.Serve(w, r, v); w.Code != 200 {
			t.Fatalf("%s: %d %s", address, w.Code, w.Body)
		}
	}
}

// A live part belongs to the record of a page that the same session was shown. Without that page
// it is an act of its own, and so are the lists that it reads.
func TestAPartContinuesOnlyAPageOfItsSession(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "activity", "servers", "agents", "decisions", "health"} {
		t.Run("/"+path, func(t *testing.T) {
			t.Parallel()
			c, l := recorded(t)
			mine, other := visitor(t, c), visitor(t, c)
			acts := func(step string, want int, continues bool) {
				t.Helper()
				all := 0
				if continues {
					all = l.listed
				}
				if l.acts != want || l.continued != all {
					t.Errorf("%s: %d acts are recorded, want %d; %d of %d lists continue one", step, l.acts, want, l.continued, l.listed)
				}
				l.acts, l.listed, l.continued = 0, 0, 0
			}
			for _, elsewhere := range []string{"policy", "agents/one?peer=p"} {
				mine(elsewhere, false)
			}
			acts("other pages", 2, false)
			mine(path+"?part=1", true)
			acts("a part without its page", 1, false)
			mine(path, false)
			acts("the page", 1, false)
			for range 3 {
				mine(path+"?part=1", true)
			}
			acts("its parts", 0, true)
			other(path+"?part=1", true)
			acts("a part in another session", 1, false)
			mine(path+"?part=1", false)
			acts("not a request of htmx", 1, false)
			mine("agents/one?peer=p&part=1", true)
			acts("a page without a live part", 1, false)
		})
	}
}
