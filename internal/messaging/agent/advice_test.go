package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// The answer to a message that was suppressed as a repeat names the first message, in every
// form of its address.
func TestASuppressedMessageNamesTheFirst(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	b := h.legacy("b").registered("b")
	h.legacy("c").registered("c")
	first := a.call("send", m{"to": "b", "body": "again"}).want("").str("message_id")
	peer := a.call("send", m{"to": "b", "body": "other"}).want("").str("deliveries.0.peer_id")
	for _, to := range []any{"b", peer, "b@default", []string{"c", "b"}} {
		r := a.call("send", m{"to": to, "body": "again", "subject": "another"}).want("DUPLICATE_SUPPRESSED")
		if r.str("error.details.message_id") != first || !strings.Contains(r.text, first) {
			t.Errorf("to %v: %s", to, r.raw)
		}
		if st := a.call("message_status", m{"message_id": r.str("error.details.message_id")}).want(""); st.str("deliveries.0.to") != "b" {
			t.Errorf("%s", st.raw)
		}
	}
	if r := b.call("inbox", m{"peek": true}).want(""); r.num("pending") != 2 {
		t.Errorf("%s", r.raw)
	}
}

// The refusal of a suspected loop says what to do instead, and that works: for a chain of
// replies that is too deep, and for a thread with too many messages in a time.
func TestASuspectedLoopSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for what, l := range map[string]mail.Limits{
		"too deep": {ReplyDepth: 3}, "too fast": {ThreadMessages: 3, ThreadTime: time.Hour},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := build(t, plan{mail: l})
			two := []*agentClient{h.legacy("a").registered("a"), h.legacy("b").registered("b")}
			last := two[0].call("send", m{"to": "b", "body": "0"}).want("").str("message_id")
			var r *reply
			for i := 1; i < 10; i++ {
				me := two[i%2]
				me.call("inbox", m{}).want("")
				r = me.call("send", m{"to": []string{"a", "b"}[(i+1)%2], "body": fmt.Sprint(i), "reply_to": last})
				if r.failed {
					break
				}
				last = r.str("message_id")
			}
			r.want("LOOP_SUSPECTED")
			for _, word := range []string{"Stop answering", "without reply_to", "operator"} {
				if !strings.Contains(r.text, word) {
					t.Errorf("no %q in %s", word, r.text)
				}
			}
			two[0].call("send", m{"to": "b", "body": "something new"}).want("")
			two[0].call("send", m{"to": "operator", "body": "we go round in circles"}).want("")
		})
	}
}
