package client

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

const lineListen = `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"notifications":{"resourcesListChanged":true,"resourceSubscriptions":["instr://voice","file:///x"]}}}`

const acknowledged = "notifications/subscriptions/acknowledged"

// listen answers with a stream that is acknowledged after k.slow and then stays open
// without events. It refuses the next k.full listens, and ends the next k.short streams
// after their acknowledgement.
func (k *keeper) listen(w http.ResponseWriter, r *http.Request, m *wire.Message) {
	k.mu.Lock()
	refused, short := k.full > 0, k.short > 0
	if refused {
		k.full--
	} else if short {
		k.short--
	}
	k.mu.Unlock()
	if refused {
		w.Header().Set("Content-Type", "application/json")
		w.Write(rawjson.AppendError(nil, m.ID, &wire.Error{Code: 1429, Message: "Too many"}))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	time.Sleep(k.slow)
	fmt.Fprintf(w, "data: %s\n\n", rawjson.AppendNotification(nil, acknowledged, []byte(`{}`)))
	w.(http.Flusher).Flush()
	switch {
	case short && k.polite:
		fmt.Fprintf(w, "data: %s\n\n", rawjson.AppendNotification(nil, "notifications/cancelled", []byte(`{"requestId":7}`)))
		fmt.Fprintf(w, "data: %s\n\n", rawjson.AppendResult(nil, m.ID, []byte(`{"resultType":"complete"}`)))
	case !short:
		<-r.Context().Done()
	}
}

// listens returns the tokens of the listens so far.
func (k *keeper) listens() (tokens []string) {
	for _, line := range k.requests() {
		if token, ok := strings.CutPrefix(line, "POST subscriptions/listen"); ok {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	return tokens
}

func TestAListenGoesOnWithTheNextSession(t *testing.T) {
	t.Parallel()
	for _, full := range []int{0, 2} {
		t.Run(fmt.Sprint(full, " refusals"), func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t)
			s := shimAt(t, k, &GuideOptions{Ask: true})
			s.says(lineListen)
			if got := s.hear(); !strings.Contains(got, acknowledged) {
				t.Fatal(got)
			}
			k.with(func() { clear(k.good); k.full = full })
			s.says(modernLine(2, "tools/list"))
			want := []string{`"id":2,"result"`, "notifications/resources/list_changed", `notifications/resources/updated","params":{"uri":"instr://voice"`, `notifications/resources/updated","params":{"uri":"file:///x"`}
			for range len(want) {
				got := s.hear()
				at := slices.IndexFunc(want, func(w string) bool { return strings.Contains(got, w) })
				if at < 0 {
					t.Fatalf("heard %s, of which %q is left", got, want)
				}
				want = slices.Delete(want, at, at+1)
			}
			tokens := slices.Repeat([]string{second}, full+1)
			if got := k.listens(); !slices.Equal(got, append([]string{first}, tokens...)) {
				t.Errorf("listens with %q", got)
			}
		})
	}
}

func TestAListenThatIsRefusedForGoodIsAnswered(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := shimAt(t, k, &GuideOptions{Ask: true})
	k.with(func() { k.full = 1 })
	s.says(lineListen)
	if got := s.hear(); !strings.Contains(got, `"id":7,"error":{"code":1429`) {
		t.Errorf("at first: %s", got)
	}
	s.says(lineListen)
	s.hear()
	k.with(func() { clear(k.good); k.full = 100 })
	s.says(modernLine(2, "tools/list"))
	s.hear()
	if got := s.hear(); !strings.Contains(got, `"id":7,"error":{"code":1429`) {
		t.Errorf("with the next session: %s", got)
	}
}

func TestAListenThatEndsIsBegunAgain(t *testing.T) {
	t.Parallel()
	for _, polite := range []bool{false, true} {
		t.Run(fmt.Sprint("answered: ", polite), func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t)
			k.short, k.polite = 2, polite
			s := shimAt(t, k, &GuideOptions{Ask: true})
			s.says(lineListen)
			for _, want := range []string{acknowledged, "resources/list_changed", "instr://voice", "file:///x", "resources/list_changed", "instr://voice", "file:///x"} {
				if got := s.hear(); !strings.Contains(got, want) {
					t.Fatalf("heard %s, want %s", got, want)
				}
			}
		})
	}
}

func TestAListenThatKeepsEndingIsEndedForTheClient(t *testing.T) {
	t.Parallel()
	for polite, want := range map[bool]string{true: `"id":7,"result":{"resultType":"complete"}`, false: `"id":7,"error":{"code":1502`} {
		k := newKeeper(t)
		k.short, k.polite = 1000, polite
		s := shimAt(t, k, &GuideOptions{Ask: true})
		s.says(lineListen)
		got := ""
		for !strings.Contains(got, `"id":7,`) {
			got = s.hear()
		}
		if !strings.Contains(got, want) {
			t.Errorf("at last: %s, want %s", got, want)
		}
		if n := len(k.listens()); n != roundsKept {
			t.Errorf("%d rounds, want %d", n, roundsKept)
		}
	}
}

// The client gets exactly one acknowledgement. With Behind, the session may become ready at
// any moment of a listen.
func TestTheClientGetsItsAcknowledgementOnce(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.slow = 20 * time.Millisecond
	for range 20 {
		s := shimAt(t, k, &GuideOptions{Ask: true, Behind: true})
		s.says(lineListen)
		if got := s.hear(); !strings.Contains(got, acknowledged) {
			t.Fatal(got)
		}
		s.says(modernLine(2, "tools/list"))
		for got := ""; !strings.Contains(got, `"id":2,`); {
			if got = s.hear(); strings.Contains(got, acknowledged) {
				t.Fatal("it is acknowledged twice")
			}
		}
		go func() {
			for s.out.Scan() {
			}
		}()
		s.over()
	}
}

func TestTheEndOfTheInputEndsAListen(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := shimAt(t, k, &GuideOptions{Ask: true})
	s.says(lineListen)
	s.hear()
	begun := time.Now()
	s.over()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
