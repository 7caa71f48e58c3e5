package client

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
)

// subscribed returns a keeper, and a shim whose client listens there and is subscribed to file:///x.
func subscribed(t *testing.T) (*keeper, *stdio) {
	t.Helper()
	k := newKeeper(t)
	s := shimAt(t, k, nil)
	s.says(lineInit)
	s.hear()
	s.says(lineReady)
	s.says(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///x"}}`)
	s.hear()
	until(t, "the standalone stream is open", func() bool { return k.has("GET") })
	return k, s
}

// subscribedIn returns how often the client's subscription was sent to the keeper.
func (k *keeper) subscribedIn() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, line := range k.seen {
		if strings.HasPrefix(line, "POST resources/subscribe") {
			n++
		}
	}
	return n
}

// A subscription that the daemon refuses in a new session is made again later: after a while, and
// whenever resources change, however often it is refused. The client is then told to look again.
func TestASubscriptionThatANewSessionLacksIsMadeLater(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string]int{"with time": 0, "with changes": 2 * owedTries} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, s := subscribed(t)
			k.with(func() { k.forgot, k.shut = true, "resources/subscribe" })
			s.says(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
			for _, want := range []string{protocol.ToolsChanged, `{"uri":"file:///x"}`, `"id":3`} {
				if got := s.hear(); !strings.Contains(got, want) {
					t.Fatalf("the client reads %s in the new session, want %s", got, want)
				}
			}
			if n := k.subscribedIn(); n != 2 {
				t.Fatalf("%d subscriptions, want 2", n)
			}
			until(t, "the new session alone has a stream", func() (alone bool) {
				k.with(func() { alone = k.begun == 2 && k.gets == 1 })
				return alone
			})
			change := func() {
				before := k.subscribedIn()
				k.news <- protocol.ResourcesChanged
				s.hear()
				until(t, "the subscription is made again", func() bool { return k.subscribedIn() > before })
			}
			for range changes {
				change()
			}
			k.with(func() { k.shut = "" })
			if changes > 0 {
				k.news <- protocol.ResourcesChanged
			}
			for got := ""; !strings.Contains(got, `{"uri":"file:///x"}`); got = s.hear() {
			}
		})
	}
}
