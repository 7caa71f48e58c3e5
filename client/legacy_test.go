package client

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// refusesWith answers initialize with an error.
func refusesWith(status int, code int64, message string) func(http.ResponseWriter, wire.ID) {
	return func(w http.ResponseWriter, id wire.ID) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write(rawjson.AppendError(nil, id, &wire.Error{Code: code, Message: message, Data: []byte(`{"ref":1}`)}))
	}
}

// greeted returns when initialize came.
func (k *keeper) greeted() []time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.greets)
}

// A session that the daemon has forgotten and does not open again is asked for
// once a second, and goes on with its subscriptions when the daemon opens it. The client is then
// told to look again.
func TestASessionThatIsRefusedIsAskedForWithPauses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse func(http.ResponseWriter, wire.ID)
		told   string // to the client's request
	}{
		"policy": {refusesWith(http.StatusForbidden, 1403, "Denied"), `"error":{"code":1403,"message":"Denied","data":{"ref":1}}`},
		"full":   {refusesWith(http.StatusServiceUnavailable, 1503, "Too many sessions"), `"code":1503`},
		"no id": {func(w http.ResponseWriter, id wire.ID) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(rawjson.AppendResult(nil, id, []byte(`{"protocolVersion":"2025-11-25"}`)))
		}, `"code":1502`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, s := subscribed(t)
			k.with(func() { k.forgot, k.refuse = true, c.refuse })
			close(k.over)
			until(t, "the session is asked for twice", func() bool { return len(k.greeted()) >= 3 })
			if at := k.greeted(); at[2].Sub(at[1]) < time.Second*9/10 {
				t.Errorf("the session was asked for again after %v", at[2].Sub(at[1]))
			}
			s.says(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
			if got := s.hear(); !strings.Contains(got, c.told) || !strings.Contains(got, `"id":3`) {
				t.Errorf("the client reads %s, want %s", got, c.told)
			}
			k.with(func() { k.refuse, k.seen = nil, nil })
			s.says(`{"jsonrpc":"2.0","id":4,"method":"tools/list"}`)
			for _, want := range []string{`notifications/tools/list_changed"`, `notifications/resources/updated","params":{"uri":"file:///x"}`, `"result"`} {
				if got := s.hear(); !strings.Contains(got, want) {
					t.Errorf("the client reads %s once the daemon has room, want %s", got, want)
				}
			}
			until(t, "the subscription is made again", func() bool { return k.has("POST resources/subscribe") })
		})
	}
}

// The shim repeats the subscriptions of a session that the daemon has forgotten in the next
// session, also if the daemon accepts no connection for a moment.
func TestASessionIsSetUpAgainByABusyDaemon(t *testing.T) {
	t.Parallel()
	k, s := subscribed(t)
	k.with(func() {
		k.forgot, k.seen = true, nil
		k.refuse = func(w http.ResponseWriter, id wire.ID) {
			k.busy(500 * time.Millisecond)
			k.with(func() { k.refuse = nil })
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", secondID)
			w.Write(rawjson.AppendResult(nil, id, []byte(`{"protocolVersion":"2025-11-25","capabilities":{}}`)))
		}
	})
	close(k.over)
	until(t, "the subscription is made again", func() bool { return k.has("POST resources/subscribe") })
	if got := s.hear(); !strings.Contains(got, `notifications/resources/updated","params":{"uri":"file:///x"}`) {
		t.Errorf("the client reads %s", got)
	}
}
