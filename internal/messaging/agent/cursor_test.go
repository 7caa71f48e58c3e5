package agent

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
)

func TestCursorsAreSealed(t *testing.T) {
	t.Parallel()
	s := &cursors{o: &Options{CursorKey: []byte("0123456789abcdef")}}
	other := &cursors{o: &Options{CursorKey: []byte("0123456789abcdeg")}}
	id, thread := "01JC000000000000000000000A", "01JC000000000000000000000B"
	for _, r := range []mail.Receipt{{PeerID: id, Epoch: 1}, {PeerID: id, Epoch: 3, Seq: 1 << 40, Notice: 7}, {PeerID: id, Epoch: 3, Seq: 2, Thread: thread}} {
		text := s.cursor(r, "s:abc")
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{16,200}$`).MatchString(text) {
			t.Errorf("the cursor %s does not fit its schema", text)
		}
		got, err := s.receipt(text, "s:abc")
		if err != nil || *got != r {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
		if _, err := s.receipt(text, "s:abd"); err == nil {
			t.Error("a cursor of another session was taken")
		}
		if _, err := other.receipt(text, "s:abc"); err == nil {
			t.Error("a cursor under another key was taken")
		}
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			b := append([]byte(nil), raw...)
			b[i] ^= 1
			if _, err := s.receipt(base64.RawURLEncoding.EncodeToString(b), "s:abc"); err == nil {
				t.Errorf("a cursor with a changed byte %d was taken", i)
			}
		}
		for n := range len(raw) {
			if _, err := s.receipt(base64.RawURLEncoding.EncodeToString(raw[:n]), "s:abc"); err == nil && n > 0 {
				t.Errorf("the first %d bytes of a cursor were taken", n)
			}
		}
	}
	if r, err := s.receipt("", "s:abc"); r != nil || err != nil {
		t.Error(r, err)
	}
}

// A cursor confirms only the messages of its own answer: after the answer of an inbox was
// lost, the cursor of another call confirms none of that answer's messages.
func TestACursorConfirmsOnlyItsOwnAnswer(t *testing.T) {
	t.Parallel()
	for what, other := range map[string]func(*agentClient) *reply{
		"register":          func(a *agentClient) *reply { return a.call("register", m{}) },
		"register, renamed": func(a *agentClient) *reply { return a.call("register", m{"name": "again"}) },
		"wait":              func(a *agentClient) *reply { return a.call("wait", m{"wait_ms": 1}) },
		"a peek of one":     func(a *agentClient) *reply { return a.call("inbox", m{"peek": true, "max": 1}) },
		"a peek of all":     func(a *agentClient) *reply { return a.call("inbox", m{"peek": true}) },
		"an empty thread":   func(a *agentClient) *reply { return a.call("inbox", m{"thread_id": "01JC000000000000000000000A"}) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{})
			a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
			for _, body := range []string{"1", "2", "3"} {
				b.call("send", m{"to": "a", "body": body}).want("")
			}
			begun := a.call("register", m{}).want("").str("cursor")
			a.call("inbox", m{"after": begun}).want("") // this answer is lost
			r := a.call("inbox", m{"after": other(a).want("").str("cursor")}).want("")
			if r.len("messages") != 3 || r.num("pending") != 3 || r.at("messages.2.redelivered") != true {
				t.Errorf("%s", r.raw)
			}
			if r = a.call("inbox", m{"after": r.str("cursor")}).want(""); r.num("pending") != 0 {
				t.Errorf("%s", r.raw)
			}
		})
	}
}

// After a larger answer was lost, the cursor of a smaller one confirms only the smaller one's
// messages. The cursor of a truncated message does not confirm it, even if its whole text was
// in an answer that was lost.
func TestACursorConfirmsNothingOfALargerAnswerThatWasLost(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	long := strings.Repeat("x", 2000)
	for _, body := range []string{long, "2", "3"} {
		b.call("send", m{"to": "a", "body": body}).want("")
	}
	cut := a.call("inbox", m{"max_bytes": 1024}).want("")
	if cut.len("messages") != 1 || cut.at("messages.0.truncated") != true {
		t.Fatalf("%s", cut.raw)
	}
	a.call("inbox", m{}).want("") // lost
	r := a.call("inbox", m{"after": cut.str("cursor"), "max": 2}).want("")
	if r.num("pending") != 3 || r.str("messages.0.body") != long {
		t.Fatalf("%s", r.raw)
	}
	r = a.call("inbox", m{"after": r.str("cursor")}).want("")
	if r.num("pending") != 1 || r.str("messages.0.body") != "3" {
		t.Errorf("%s", r.raw)
	}
}

// The cursor of register confirms no notices: a session that takes a name over still gets
// those of the name.
func TestNoticesAreShownBeforeTheyAreCovered(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	s := a.call("send", m{"to": "b", "body": "x"}).want("")
	b.call("inbox", m{}).want("")
	b.call("ack", m{"message_ids": []string{s.str("message_id")}, "outcome": "rejected"}).want("")
	a.conn.Close()
	heir := h.legacy("heir")
	heir.call("register", m{"name": "a"}).want("")
	cursor := heir.call("register", m{}).want("").str("cursor")
	in := heir.call("inbox", m{"after": cursor}).want("")
	if in.len("notices") != 1 || in.str("notices.0.state") != "rejected" {
		t.Errorf("%s", in.raw)
	}
	if in = heir.call("inbox", m{"after": in.str("cursor")}).want(""); in.len("notices") != 0 {
		t.Errorf("%s", in.raw)
	}
}
