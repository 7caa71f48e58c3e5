package upstream

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
)

// A server that says that it has no standing stream is not asked for it again.
func TestAServerWithoutAStandingStreamIsAskedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		session string
		again   bool
	}{
		{405, "s", false}, {501, "s", false}, {200, "s", false}, {204, "s", false}, {302, "s", false}, {404, "", false}, {404, "s", false},
		{405, "", false}, {501, "", false}, {500, "s", true}, {503, "s", true}, {409, "s", true}, {401, "", true},
	} {
		t.Run(fmt.Sprint(c.status, c.session), func(t *testing.T) {
			t.Parallel()
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.session = c.session
				f.stream = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) }
			})
			conn := dialLegacy(t, f.server(func(_ *Definition, d *Deps) { d.Log = slog.New(slog.DiscardHandler) }), nil)
			l := &listener{c: conn.(*httpConn), pause: firstPause}
			if then := l.once(); then == again != c.again {
				t.Errorf("what follows: %v", then)
			}
		})
	}
}
