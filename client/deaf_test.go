package client_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/client"
)

// TestConnectEndsWhenItsAnswersCannotBeWritten shows that a client which has closed its end of
// the output gets no further call made: the answers would be lost.
func TestConnectEndsWhenItsAnswersCannotBeWritten(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	socket := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	c := client.New(socket, "test")
	in, write := io.Pipe()
	out, closed := io.Pipe()
	out.CloseWithError(errors.New("the client is gone"))
	ended := make(chan error, 1)
	go func() {
		ended <- client.Connect(context.Background(), c, client.ConnectOptions{In: in, Out: closed, Log: slog.New(slog.DiscardHandler)})
	}()
	go io.WriteString(write, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`+"\n")
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "writing to the client: the client is gone") {
			t.Errorf("Connect returned %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Connect goes on although its input is open and nothing can be written")
	}
	if calls.Load() == 0 {
		t.Error("no call was made: the test shows nothing")
	}
}
