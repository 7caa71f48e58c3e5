package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/signin"
	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/overload"
)

// TestAStopDoesNotWaitForOneRenewalAfterAnother: the daemon waits for the renewals that are under
// way for one time, however many servers have one at an authorization server that does not answer.
func TestAStopDoesNotWaitForOneRenewalAfterAnother(t *testing.T) {
	t.Parallel()
	const servers = 8
	var asked atomic.Int32
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1); <-over }))
	t.Cleanup(func() { close(over); silent.Close() })
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out := &outward{dir: dir, log: slog.New(slog.DiscardHandler), record: func(string, string) {}}
	set := &serverSet{open: map[string]opened{}}
	for i := range servers {
		s := signin.Settings{Server: fmt.Sprint("s", i), URL: silent.URL + "/mcp", AllowPrivate: true, Grant: signin.GrantMachine,
			ClientID: "robot", ClientSecret: secret.New("of the robot"), Issuer: silent.URL}
		o, err := opened{def: upstream.Definition{Name: s.Server, Kind: "http", URL: s.URL, AllowPrivate: true}, sign: s}.start(upstream.Deps{Log: out.log}, out)
		if err != nil {
			t.Fatal(err)
		}
		set.open[s.Server] = o
		go func() {
			_, _ = o.tok.Refused(context.WithoutCancel(t.Context()), "", &http.Response{StatusCode: http.StatusUnauthorized})
		}()
	}
	doortest.Until(t, 20*time.Second, "all renewals are under way", func() bool { return asked.Load() >= servers })
	begun := time.Now()
	set.close(nil)
	if took := time.Since(begun); took > min(8*time.Second+overload.Late(), 14*time.Second) { // one wait is two seconds
		t.Errorf("%d servers were closed in %s", servers, took)
	}
}
