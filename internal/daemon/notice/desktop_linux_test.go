package notice_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/notice"
	"github.com/doorward/doorward/test/desktop"
)

// TestTheDesktopShowsAHeldCall: on a real bus a held call is shown with names that are
// inert, whether the service reads markup or not, without actions and arguments.
func TestTheDesktopShowsAHeldCall(t *testing.T) {
	t.Parallel()
	hostile := "<a href=\"http://evil\">w\u202er&ite\n\x1b[31m" + strings.Repeat("x", 500)
	for can, body := range map[string]string{"body body-markup actions": "&lt;a href=", "body": "<a href="} {
		address := desktop.Bus(t)
		shown := desktop.Notifications(t, address, strings.Fields(can)...)
		var said bytes.Buffer
		n := notice.New(notice.Options{Desktop: address, Log: slog.New(slog.NewTextHandler(&said, nil))})
		n.Tell(notice.Call{N: 7, Expires: time.Now().Add(time.Hour), Client: "agent", Server: "files", Tool: hostile, Args: `{"canary":1}`})
		var s desktop.Shown
		select {
		case s = <-shown:
		case <-time.After(20 * time.Second):
			t.Fatal("nothing is shown")
		}
		n.Close()
		if s.App != "Doorward" || s.Summary != "Doorward holds call 7" || len(s.Actions) != 0 || said.Len() != 0 {
			t.Errorf("%+v, log %s", s, said.String())
		}
		if !strings.HasPrefix(s.Body, "files/"+body) || strings.ContainsAny(s.Body, "\u202e\x1b") || strings.Count(s.Body, "\n") != 1 || strings.Contains(s.Body, "canary") || len(s.Body) > 500 {
			t.Errorf("with %q: %q", can, s.Body)
		}
	}
}

// A bus without a notification service belongs to no desktop and is not logged. A bus
// that is gone is logged once.
func TestABusThatIsGoneIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{desktop.Bus(t): 0, "unix:path=/nowhere/bus": 1} {
		var said bytes.Buffer
		n := notice.New(notice.Options{Desktop: address, Log: slog.New(slog.NewTextHandler(&said, nil))})
		n.Tell(notice.Call{N: 1, Expires: time.Now().Add(time.Hour)})
		n.Wait()
		n.Close()
		if strings.Count(said.String(), "the operator was not told") != want {
			t.Errorf("%s: %q", address, said.String())
		}
	}
}
