package upstream

import (
	"net/http"
	"testing"
)

// A status 404 of the stream ends a session that the server has forgotten, and no session that
// still answers. If the server fails, the session stays and the stream is opened again.
func TestA404OfTheStreamIsCheckedWithAPing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ping int // the status of its answer
		then step
		ends bool
	}{
		"the session lives":        {ping: 200},
		"the session is forgotten": {ping: 404, ends: true},
		"the server fails":         {ping: 503, then: again},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.stream = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }
				f.call = func(w http.ResponseWriter, _ *http.Request, m fakeMessage) bool {
					if m.Method != methodPing {
						return false
					}
					if c.ping != 200 {
						w.WriteHeader(c.ping)
						return true
					}
					answerJSON(w, m.ID, "{}")
					return true
				}
			})
			conn := dialLegacy(t, f.server(), nil).(*httpConn)
			l := &listener{c: conn, pause: firstPause}
			if then := l.once(); then != c.then {
				t.Errorf("what follows: %v, want %v", then, c.then)
			}
			if ended := conn.Err() != nil; ended != c.ends {
				t.Errorf("the connection has ended: %v", ended)
			}
		})
	}
}
