package front

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/sessionstore"
	"github.com/doorward/doorward/internal/trust/principal"
)

// disk is a Keeper on a real directory.
type disk struct {
	t *testing.T
	*sessionstore.Store
}

func (d disk) Keep(name string, content []byte) {
	if err := d.Store.Keep(name, content); err != nil {
		d.t.Error(err)
	}
}

// run opens a house that keeps its sessions in dir, as each run of the daemon does.
func run(t *testing.T, dir string) *house {
	t.Helper()
	store, err := sessionstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return open(t, Options{Sessions: 1000, SessionsPerPrincipal: 1000, Keeper: disk{t, store}})
}

// methods are the methods of the messages that have reached the Handler.
func (h *house) methods() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

const echo = `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{"a":1}}`

// A session continues in the next run of the daemon, whatever kind of request comes first,
// with the params of its initialize and the state that the Handler remembered. The Handler
// sees an initialize first.
func TestASessionGoesOnInTheNextRun(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"call", "batch", "notification", "stream"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "sessions")
			first := run(t, dir)
			version := "2025-11-25"
			if verb == "batch" {
				version = "2025-03-26"
			}
			id := first.session(version)
			digest := first.door.only(t).Digest
			first.door.only(t).Remember([]byte(`{"level":"debug"}`))
			first.door.Close()

			next := run(t, dir)
			var a answer
			switch verb {
			case "call":
				a = next.do("POST", "/mcp/s", echo, "Mcp-Session-Id", id)
			case "batch":
				a = next.do("POST", "/mcp/s", "["+echo+"]", "Mcp-Session-Id", id)
			case "notification":
				a = next.do("POST", "/mcp/s", `{"jsonrpc":"2.0","method":"notifications/x"}`, "Mcp-Session-Id", id)
			case "stream":
				resp, _ := next.stream("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Last-Event-Id", "0-9")
				a.status = resp.StatusCode
			}
			if a.status/100 != 2 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			s := next.door.only(t)
			if s.version.name() != version || !strings.Contains(string(s.Init.Params()), version) || s.Digest != digest || string(s.Remembered()) != `{"level":"debug"}` {
				t.Errorf("version %s, init %s, digest %s, remembered %s", s.version.name(), s.Init.Params(), s.Digest, s.Remembered())
			}
			if seen := next.methods(); seen[0] != "initialize" {
				t.Errorf("the Handler saw %v", seen)
			}
		})
	}
}

// A session of an earlier run is found only with the id, the route and the principal that
// it was opened with. Any other request gets the answer for an unknown id, byte for byte,
// and does not reach the Handler.
func TestASessionOfAnEarlierRunIsFoundByItsOwnerAlone(t *testing.T) {
	t.Parallel()
	who := map[string]*principal.Principal{
		"owner": principal.New("token:1"), "other": principal.New("token:2"), "longer": principal.New("token:11"),
		"user": principal.New("uid:1"), "process": process("1", &program{}),
	}
	dir := filepath.Join(t.TempDir(), "sessions")
	first := run(t, dir)
	first.who = who
	id := first.session("2025-11-25", "Who", "owner")
	first.door.Close()
	for _, name := range tree(t, dir) {
		if strings.Contains(name, id) {
			t.Errorf("the id is in %s", name)
		}
	}
	next := run(t, dir)
	next.who = who
	all := func(who, path, id string) []answer {
		return []answer{
			next.do("POST", path, echo, "Mcp-Session-Id", id, "Who", who),
			next.do("POST", path, "["+echo+"]", "Mcp-Session-Id", id, "Who", who),
			next.do("POST", path, `{"jsonrpc":"2.0","method":"notifications/x"}`, "Mcp-Session-Id", id, "Who", who),
			next.do("GET", path, "", "Mcp-Session-Id", id, "Who", who),
			next.do("GET", path, "", "Mcp-Session-Id", id, "Last-Event-Id", "0-1", "Who", who),
			next.do("DELETE", path, "", "Mcp-Session-Id", id, "Who", who),
		}
	}
	ids := []string{id[1:], id + "A", strings.ToUpper(id), strings.ToLower(id), "../" + id, filepath.Base(tree(t, dir)[0]), ".new-" + id}
	for name := range who {
		for _, path := range []string{"/mcp/s", "/mcp", "/mcp/t"} {
			for _, tried := range append(ids, id) {
				if name == "owner" && path == "/mcp/s" && tried == id {
					continue
				}
				unknown := all(name, path, unknownID)
				for i, a := range all(name, path, tried) {
					same(t, fmt.Sprintf("%s on %s with %q, request %d", name, path, tried, i), a, unknown[i])
				}
			}
		}
	}
	if n := next.reached(); n != 0 {
		t.Errorf("%d requests reached the Handler", n)
	}
	if a := next.do("POST", "/mcp/s", echo, "Mcp-Session-Id", id, "Who", "owner"); a.status != 200 {
		t.Errorf("its owner: %d %s", a.status, a.body)
	}
}

// tree returns the names and contents of the files of a directory.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f.Name(), string(text))
	}
	return all
}

// A session that has ended is not found in the next run, however it ended.
func TestAnEndedSessionIsNotFoundAgain(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *house, id, dir string){
		"DELETE": func(h *house, id, _ string) { h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id, "Who", "one") },
		"idle": func(h *house, _, _ string) {
			h.door.sessions.sweep(time.Now().Add(2 * time.Hour))
		},
		"of a process": func(h *house, _, _ string) {},
		"with state that the Handler cannot keep": func(h *house, _, _ string) {
			h.door.only(h.t).Remember([]byte("{}"))
			h.door.only(h.t).Remember(nil)
		},
		"remembered afterwards": func(h *house, id, _ string) {
			s := h.door.only(h.t)
			h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id, "Who", "one")
			s.Remember([]byte("{}"))
		},
		"a day later": func(h *house, _, dir string) {
			h.door.Close()
			for _, f := range tree(h.t, dir) {
				old := time.Now().Add(-sessionstore.Life)
				_ = os.Chtimes(filepath.Join(dir, f), old, old) // contents are no names
			}
		},
		"DELETE in the next run": func(h *house, id, dir string) {
			h.door.Close()
			next := run(h.t, dir)
			next.who = h.who
			if a := next.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id, "Who", "one"); a.status != http.StatusNoContent || next.reached() != 0 {
				h.t.Errorf("%d, %d requests reached the Handler", a.status, next.reached())
			}
			next.door.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "sessions")
			h := run(t, dir)
			h.who = map[string]*principal.Principal{"one": principal.New("token:1")}
			if name == "of a process" {
				h.who["one"] = process("1", &program{})
			}
			id := h.session("2025-11-25", "Who", "one")
			end(h, id, dir)
			h.door.Close()
			next := run(t, dir)
			next.who = h.who
			if a := next.do("POST", "/mcp/s", echo, "Mcp-Session-Id", id, "Who", "one"); a.status != http.StatusNotFound {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

// restarted returns a house after a restart, with the id of a session from before it.
func restarted(t *testing.T) (next *house, id string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sessions")
	first := run(t, dir)
	id = first.session("2025-11-25")
	first.door.Close()
	return run(t, dir), id
}

// Sixteen simultaneous requests reopen a session of an earlier run once. When the Handler
// refuses the initialize, its refusal is the answer, and a later request reopens the session.
func TestASessionIsOpenedAgainOnce(t *testing.T) {
	t.Parallel()
	next, id := restarted(t)
	next.refuseHello.Store(true)
	if a := next.do("POST", "/mcp/s", echo, "Mcp-Session-Id", id); a.status != 200 || !strings.Contains(a.body, errNoSuchMethod.Message) || !strings.Contains(a.body, `"id":7`) {
		t.Errorf("refused: %d %s", a.status, a.body)
	}
	next.refuseHello.Store(false)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			body := strings.Replace(echo, `"id":7`, fmt.Sprintf(`"id":%d`, i), 1)
			if a := next.do("POST", "/mcp/s", body, "Mcp-Session-Id", id); a.status != 200 || !strings.Contains(a.body, "echo") {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	hellos := 0
	for _, m := range next.methods() {
		if m == "initialize" {
			hellos++
		}
	}
	if hellos != 2 || next.door.Sessions() != 1 { // with the refused one
		t.Errorf("%d times initialize, %d sessions", hellos, next.door.Sessions())
	}
}

// A request that is about to reopen a session which another request has reopened meanwhile
// uses that session: it stays in the table, and the count of sessions is right after its end.
func TestASessionThatIsOpenIsNotReopened(t *testing.T) {
	t.Parallel()
	next, id := restarted(t)
	y := &next.door.earlier
	r := httptest.NewRequest(http.MethodPost, "/mcp/s", http.NoBody)
	var opened *Session
	for range 3 { // each has looked the session up before the previous one reopened it
		if err := y.reopen(r, nameOf(id, alice, "s"), id, alice, "s"); err != nil {
			t.Fatal(err)
		}
		s := next.door.sessions.find(id, alice, "s", overStreamable)
		if opened == nil {
			opened = s
		}
		if s != opened || s.Context().Err() != nil || next.door.Sessions() != 1 {
			t.Fatalf("the session was replaced, %d are open", next.door.Sessions())
		}
	}
	if next.door.sessions.remove(opened); next.door.Sessions() != 0 || len(next.door.sessions.counts) != 0 {
		t.Errorf("%d sessions after the end", next.door.Sessions())
	}
}

// The end of a session does not remove another session with the same id from the table or
// from the counts.
func TestTheEndOfASessionRemovesThatOneAlone(t *testing.T) {
	t.Parallel()
	table := newSessions(10, func(*principal.Principal) int { return 10 }, time.Hour)
	id := newSessionID()
	if rule := table.reserve(alice); rule != "" {
		t.Fatal(rule)
	}
	in, out := newSession(id, alice, "s", overStreamable, time.Now()), newSession(id, alice, "s", overStreamable, time.Now())
	table.publish(in)
	table.remove(out)
	if table.find(id, alice, "s", overStreamable) != in || table.count() != 1 || out.Context().Err() == nil {
		t.Errorf("%d sessions", table.count())
	}
	table.remove(in)
	table.remove(in)
	if table.find(id, alice, "s", overStreamable) != nil || table.count() != 0 {
		t.Errorf("%d sessions after the end", table.count())
	}
}

// A session numbers its questions and streams in the next run from a number that the run
// before did not reach. So a late answer to an old question does not answer a new one, and
// an old event id names no stream.
func TestNumbersOfAnEarlierRunMeanNothing(t *testing.T) {
	t.Parallel()
	next, id := restarted(t)
	_, events := next.stream("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Last-Event-Id", "0-500")
	s := next.door.only(t)
	asked := make(chan Reply, 1)
	go func() {
		r, _ := s.Ask(t.Context(), "roots/list", nil)
		asked <- r
	}()
	question := frame(t, events)
	for n := range 20 {
		next.do("POST", "/mcp/s", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"forged":true}}`, n), "Mcp-Session-Id", id)
	}
	select {
	case r := <-asked:
		t.Fatalf("a late answer was taken: %s", r.Result)
	default:
	}
	number := string(rawjson.Get(question.Data, "id"))
	next.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":`+number+`,"result":{"roots":[]}}`, "Mcp-Session-Id", id)
	if r := <-asked; string(r.Result) != `{"roots":[]}` {
		t.Errorf("answered %s", r.Result)
	}
	for stream := 1; stream < 5; stream++ {
		if a := next.do("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Last-Event-Id", fmt.Sprintf("%d-1", stream)); a.status != http.StatusBadRequest {
			t.Errorf("stream %d: %d", stream, a.status)
		}
	}
}
