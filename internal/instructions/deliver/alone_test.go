package deliver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// guesses names texts that exist, one that only other readers may read, and one
// that does not exist.
const guesses = `{"notifications":{"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["instr://session","instr://templates/judge","instr://templates/plan","instructions://templates/foreign","instr://templates/nosuch"]}}`

var guessed = []string{"instr://session", "instr://templates/judge", "instr://templates/plan", "instructions://templates/foreign", "instr://templates/nosuch"}

// stranger is the principal that all loopback callers without a credential share.
func stranger() *principal.Principal {
	return principal.New("loopback:uid=1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Observed}).WithLocal()
}

// everyText changes each guessed text that exists, and has all listeners notified.
func (h *house) everyText(n int) {
	h.t.Helper()
	h.file("judge", "class: instructions", fmt.Sprintf("Judgement %d.", n))
	h.file("plan", "class: instructions\ntier: structural", fmt.Sprintf("Plan %d.", n))
	h.file("foreign", "class: template\ntier: structural\naudience: {principals: [\"token:other\"]}", fmt.Sprintf("Foreign %d.", n))
	h.tell()
}

// told is what heard returns after a change of these URIs.
func told(uris ...string) (out []string) {
	for _, uri := range uris {
		out = append(out, "resources/updated "+uri)
	}
	slices.Sort(out)
	return out
}

// TestAListenHearsWhatItsOwnSessionMayRead: a listen is notified of the texts that its
// own session may read. All loopback callers share one connection; a token that one
// of them shows gives nothing to a listen without a token, with a token of fewer
// tiers, or with an ended session.
func TestAListenHearsWhatItsOwnSessionMayRead(t *testing.T) {
	t.Parallel()
	h := build(t, plan{still: true})
	full, partly, over := h.full(), h.partly(), h.full()
	c := h.open(stranger(), "", "", true)
	listeners := make(map[string]*hearing)
	for name, id := range map[string]string{"full": full, "partly": partly, "none": "", "over": over} {
		c.delivery = id
		listeners[name], _ = c.listen(t, guesses)
	}
	expect := func(what string, want map[string][]string) {
		t.Helper()
		for name, l := range listeners {
			if got := l.heard(t); !slices.Equal(got, want[name]) {
				t.Errorf("%s: %s heard %q, want %q", what, name, got, want[name])
			}
		}
	}
	lists := []string{"prompts/list_changed", "resources/list_changed"}
	gone := append(slices.Clone(lists), told(guessed...)...)
	h.end(over)
	h.tell()
	expect("the end of a session", map[string][]string{"over": gone})
	// Every further request of the connection bears the session that may read everything.
	c.delivery = full
	c.everything(h)
	all := told(guessed[0], guessed[1], guessed[2])
	h.everyText(1)
	expect("a change of every text", map[string][]string{"full": all, "partly": told(guessed[0], guessed[2])})
	h.file("another", "class: template\nmcp_prompt: true", "For the first alone.")
	h.tell()
	expect("a new text", map[string][]string{"full": append(slices.Clone(lists), told(guessed[0])...)})
	h.end(full)
	h.tell()
	expect("a revoked session", map[string][]string{"full": gone})
	c.delivery = h.full() // another one of the same principal
	c.everything(h)
	h.everyText(2)
	expect("after that", map[string][]string{"partly": told(guessed[0], guessed[2])})
}

// TestASubscriptionHearsWhatItsOwnSessionMayRead: a subscription belongs to the token
// that was shown with it, in an MCP session that shows several tokens in turn.
// Changes of lists are those of the last token.
func TestASubscriptionHearsWhatItsOwnSessionMayRead(t *testing.T) {
	t.Parallel()
	h := build(t, plan{still: true})
	full, partly := h.full(), h.partly()
	c := h.open(stranger(), "digest-x", "", false)
	l := &hearing{events: c.events}
	ask := func(delivery, method string, uris ...string) {
		t.Helper()
		c.delivery = delivery
		for _, uri := range uris {
			if r := c.ask(method, m{"uri": uri}); r.Error != nil {
				t.Fatal(r.Error)
			}
		}
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := l.heard(t); !slices.Equal(got, want) {
			t.Errorf("%s: heard %q, want %q", what, got, want)
		}
	}
	ask("", "resources/subscribe", guessed...)
	c.delivery = full
	c.everything(h)
	h.everyText(1)
	expect("subscribed without a token")
	ask(partly, "resources/subscribe", guessed...)
	c.delivery = full
	c.everything(h)
	h.everyText(2)
	expect("subscribed with less", told(guessed[0], guessed[2])...)
	ask(full, "resources/subscribe", guessed...)
	ask(full, "resources/unsubscribe", guessed[0])
	h.everyText(3)
	expect("subscribed with everything", told(guessed[1], guessed[2])...)
	h.end(full)
	h.tell()
	expect("revoked", append([]string{"prompts/list_changed", "resources/list_changed"}, told(guessed[1:]...)...)...)
	c.delivery = h.full()
	c.everything(h)
	h.everyText(4)
	expect("another session of the same principal, which has no subscriptions")
	h.file("another", "class: template\nmcp_prompt: true", "A new one.")
	h.tell()
	expect("a list of the other session", "prompts/list_changed", "resources/list_changed")
}

// TestManyListensDisplaceNoEarlierListen: listens go on while the same connection
// opens many more, with many tokens and more resources than a listen may name.
func TestManyListensDisplaceNoEarlierListen(t *testing.T) {
	t.Parallel()
	h := build(t, plan{still: true, rules: `@id("ci") permit (principal == Principal::"token:ci", action == Action::"instructions.structural", resource);`})
	own := h.s.credentials.bearer(principal.New("token:ci", principal.Fact{Name: "token", Value: "T-own", Grade: principal.Verified}).WithLocal())
	c := h.open(stranger(), "", h.full(), true)
	one, _ := c.listen(t, guesses)
	c.delivery = own
	two, _ := c.listen(t, guesses)
	names := make([]string, 2*urisKept)
	for i := range names {
		names[i] = fmt.Sprintf(`"instr://templates/x%d"`, i)
	}
	many := `{"notifications":{"resourceSubscriptions":[` + strings.Join(names, ",") + `]}}`
	for i := range bearersKept + 10 {
		c.delivery = h.s.credentials.bearer(principal.New("token:ci", principal.Fact{Name: "token", Value: fmt.Sprint("T", i), Grade: principal.Verified}).WithLocal())
		if i%64 == 0 {
			_, ack := c.listen(t, many)
			n := 0
			for range rawjson.Elements(rawjson.GetPath(ack.Params, "notifications", "resourceSubscriptions")) {
				n++
			}
			if n != urisKept {
				t.Errorf("%d resources of one listen", n)
			}
		}
		c.ask("tools/list", m{})
	}
	h.everyText(1)
	if got := one.heard(t); !slices.Equal(got, told(guessed[:3]...)) {
		t.Errorf("the first heard %q", got)
	}
	if got := two.heard(t); !slices.Equal(got, told(guessed[0], guessed[2])) {
		t.Errorf("a bearer token heard %q", got)
	}
}

// TestARevokedBearerTokenIsNotifiedOfNoChange: after its revocation a bearer token
// is notified of the loss of its texts and of no further change, whether it was
// shown beside a connection or authenticated it.
func TestARevokedBearerTokenIsNotifiedOfNoChange(t *testing.T) {
	t.Parallel()
	good := make(chan bool, 1)
	good <- true
	holds := func(*principal.Principal) bool { is := <-good; good <- is; return is }
	h := build(t, plan{still: true, change: func(o *Options) { o.Holds = holds },
		rules: `@id("ci") permit (principal == Principal::"token:ci", action == Action::"instructions.structural", resource);`})
	ci := principal.New("token:ci", principal.Fact{Name: "token", Value: "T1", Grade: principal.Verified}).WithLocal()
	beside, _ := h.open(stranger(), "", h.s.credentials.bearer(ci), true).listen(t, guesses)
	itself, _ := h.open(ci, "", "", true).listen(t, guesses)
	expect := func(what string, want []string) {
		t.Helper()
		for _, l := range []*hearing{beside, itself} {
			if got := l.heard(t); !slices.Equal(got, want) {
				t.Errorf("%s: %q", what, got)
			}
		}
	}
	h.everyText(1)
	expect("while it is good", told(guessed[0], guessed[2]))
	<-good
	good <- false
	h.tell()
	l := beside.heard(t)
	if itself.heard(t); !slices.Contains(l, "resources/updated "+guessed[2]) || slices.Contains(l, "resources/updated "+guessed[4]) {
		t.Errorf("its end: %q", l)
	}
	h.everyText(2)
	expect("afterwards", nil)
}

// TestAListenNeedsAPass: listening and subscribing are refused without a pass for
// this very connection. A modern connection has no resources/subscribe.
func TestAListenNeedsAPass(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	modern, legacy := h.modern("a", id), h.legacy("b", id)
	foreign, err := h.gate.Enter(gate.Act{Who: program("c"), Action: "subscriptions/listen", Server: ServerName, Source: source, Delivery: id})
	h.must(err)
	defer foreign.Leave("ended", 0)
	for _, ctx := range []context.Context{context.Background(), gate.WithPass(context.Background(), foreign)} {
		if r, err := modern.conn.Call(ctx, &upstream.Request{Method: "subscriptions/listen", Params: []byte(guesses)}, nil); err != nil || r.Error != errNoPass {
			t.Errorf("%+v %v", r, err)
		}
		if r, err := legacy.conn.Call(ctx, &upstream.Request{Method: "resources/subscribe", Params: []byte(`{"uri":"instr://session"}`)}, nil); err != nil || r.Error != errNoPass {
			t.Errorf("%+v %v", r, err)
		}
	}
	if r := modern.ask("resources/subscribe", m{"uri": "instr://session"}); r.Error != errNoMethod {
		t.Errorf("%+v", r)
	}
}
