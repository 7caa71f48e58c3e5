package upstream

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
)

const listChanged = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"

// A standing stream that the server refuses to open again is tried until it opens. A refusal
// that may be of the event to resume after is answered by an attempt without it.
func TestARefusedStandingStreamIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		id     string // the event id of the first stream
		last   string // the header of the stream that opens
	}{
		{400, "", "[]"}, {401, "", "[]"}, {403, "", "[]"}, {406, "", "[]"}, {409, "", "[]"}, {503, "", "[]"},
		{400, "id: e1\n", "[]"}, {404, "id: e1\n", "[]"}, {409, "id: e1\n", "[e1]"}, {403, "id: e1\n", "[e1]"}, {503, "id: e1\n", "[e1]"},
	} {
		t.Run(fmt.Sprint(c.status, c.id != ""), func(t *testing.T) {
			t.Parallel()
			var gets atomic.Int32
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.stream = func(w http.ResponseWriter, r *http.Request) {
					switch gets.Add(1) {
					case 1:
						events(w)("%sretry: 1\n%s", c.id, listChanged)
					case 2:
						w.WriteHeader(c.status)
					default:
						events(w)(listChanged)
						<-r.Context().Done()
					}
				}
			})
			var got recorder
			conn := dialLegacy(t, f.server(func(_ *Definition, d *Deps) { d.Log = slog.New(slog.DiscardHandler) }), got.on)
			conn.Listen()
			eventually(t, "two changes", func() bool { return got.count("notifications/tools/list_changed") == 2 })
			streams := f.requests(func(s seen) bool { return s.httpMethod == http.MethodGet })
			if last := fmt.Sprint(streams[2].header[headerLastEvent]); len(streams) != 3 || last != c.last {
				t.Errorf("%d streams; the last one resumed after %s, want %s", len(streams), last, c.last)
			}
		})
	}
}
