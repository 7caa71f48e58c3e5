package front

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"testing"
)

// failingAwait is a request whose wait panics after some rounds.
type failingAwait struct {
	rounds int
	fail   chan struct{}
}

func (f *failingAwait) Await(context.Context) {
	if f.rounds--; f.rounds < 0 {
		<-f.fail
		panic("a fault")
	}
}

func (f *failingAwait) Go(context.Context) Reply { return Reply{Later: f} }

// A panic during the wait of a request ends its connection and its call, and nothing else.
func TestAPanicDuringAWaitEndsItsConnection(t *testing.T) {
	t.Parallel()
	for rounds := range 3 {
		t.Run(fmt.Sprint(rounds), func(t *testing.T) {
			t.Parallel()
			logged := new(logLines)
			h, handlers := openReturningWith(t, true, Options{}, func(s *http.Server) { s.ErrorLog = log.New(logged, "", 0) })
			id := h.session("2025-06-18")
			f := &failingAwait{rounds, make(chan struct{})}
			h.serve = func(context.Context, *Exchange) Reply { return Reply{Later: f} }
			call := postIn(id, "application/json", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":{}}`)
			c := dialDoor(t, h)
			io.WriteString(c, call)
			h.eventually("the handler returns", func() bool { return handlers() == 0 })
			close(f.fail)
			if text, err := io.ReadAll(c); err != nil || len(text) > 0 {
				t.Errorf("answer %q, %v", text, err)
			}
			goesOn(t, h, logged, call, "failingAwait")
		})
	}
}
