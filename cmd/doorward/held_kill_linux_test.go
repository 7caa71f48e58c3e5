package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heldSteps are the records of a held call, in their order. The caller is answered at about
// the time of the last one.
var heldSteps = []string{"approval.asked", "approval.granted", "decision", "outcome"}

// heldRounds is how often the daemon is killed at each record, at least.
const heldRounds = 3

// heldHouse is a daemon with one held tool, whose server notes each call in a file.
type heldHouse struct {
	t      *testing.T
	d      *mailDaemon
	c, web *mailClient
	token  string
	rounds []heldRound
	n      uint64 // of the last question
	grant  int    // bytes by which the record grows with an approval
}

// heldRound is the result of one call during which the daemon was killed.
type heldRound struct {
	id    int
	steps []string // the records that were there in the end
	ok    bool     // the caller was answered
}

func startHeld(t *testing.T, wait string) *heldHouse {
	t.Helper()
	d := startMail(t, "held", `listen: {http: [{addr: "127.0.0.1:0"}]}
approvals: {wait: `+wait+`}
mcpServers:
  s:
    command: fakemcp
    args: [offers, "${HOME}/offers.json"]
    doorward: {sandbox: "off", tools: {ask: [tally]}}
`, "offers.json", `{"tools":[{"name":"tally","description":"counts","inputSchema":{"type":"object"}}]}`)
	out, status := d.human("doorward", "token", "new", "boss", "--scope", "approve,admin")
	at := strings.Index(out, "dw_")
	if status != 0 || at < 0 {
		t.Fatalf("token new: status %d\n%s", status, out)
	}
	h := &heldHouse{t: t, d: d, c: d.client("unix"), web: d.client("tcp"), token: strings.Fields(out[at:])[0]}
	if !poll(mailSoon, h.known) {
		t.Fatal("the token is not taken")
	}
	return h
}

// known reports whether the daemon accepts the token. It rereads tokens for an unknown one at
// most every 100 ms.
func (h *heldHouse) known() bool {
	resp := h.operator(http.MethodGet, "/admin/v1/approvals", "")
	if resp == nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// call calls the held tool. It always comes back: with an answer, or with the end of the
// connection.
func (h *heldHouse) call(id int) <-chan *mailReply {
	done := make(chan *mailReply, 1)
	go func() {
		done <- h.c.post(context.Background(), "/mcp/s", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"tally","arguments":{"id":%d},%s}}`, mailIDs.Add(1), id, meta), "tools/call tally", nil)
	}()
	return done
}

func (h *heldHouse) answer(done <-chan *mailReply) *mailReply {
	h.t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(mailSoon):
		h.t.Fatal("a call hangs")
		return nil
	}
}

// operator makes one request with the operator's token.
func (h *heldHouse) operator(method, path, body string) *http.Response {
	req, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		h.t.Error(err)
		return nil
	}
	req.Host = h.d.address(false)
	req.Header.Set("Authorization", "Bearer "+h.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.web.http.Do(req)
	if err != nil {
		return nil // the daemon is gone
	}
	return resp
}

func (h *heldHouse) pending() (all []struct{ N uint64 }) {
	resp := h.operator(http.MethodGet, "/admin/v1/approvals", "")
	if resp == nil {
		return nil
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil && resp.StatusCode != http.StatusOK {
		h.t.Errorf("what waits: %s, %v", resp.Status, err)
	}
	return all
}

// settle decides the one call that waits.
func (h *heldHouse) settle(decision string) {
	h.t.Helper()
	var n uint64
	if !poll(mailSoon, func() bool {
		all := h.pending()
		if len(all) == 1 {
			n = all[0].N
		}
		return n != 0
	}) {
		h.t.Fatal("no call waits")
	}
	h.n = n
	h.decide(n, decision)
}

// choke lets the file of the record grow by an approval and no further, until the daemon
// ends. The next record, the decision, goes to another file, which often takes longer than
// a kill.
func (h *heldHouse) choke(w *heldWatch) {
	info, err := w.file.Stat()
	if err == nil {
		limit := unix.Rlimit{Cur: uint64(info.Size()) + uint64(h.grant) + 64, Max: unix.RLIM_INFINITY}
		err = unix.Prlimit(h.d.proc.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil)
	}
	if err != nil {
		h.t.Error(err)
	}
}

// heldWatch reads the record as it grows.
type heldWatch struct {
	file *os.File
	at   int64
	rest []byte
	seen []string

	before, grant int // bytes of the record before the last one, and of an approval with the request for it
}

func (h *heldHouse) watch() *heldWatch {
	h.t.Helper()
	all, err := filepath.Glob(filepath.Join(h.d.dir, "s", "audit", "*.jsonl"))
	if err != nil || len(all) == 0 {
		h.t.Fatal("no record", err)
	}
	f, err := os.Open(slices.Max(all))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { f.Close() })
	end, err := f.Stat()
	if err != nil {
		h.t.Fatal(err)
	}
	return &heldWatch{file: f, at: end.Size()}
}

// look notes the steps that were recorded since the last look.
func (w *heldWatch) look() []string {
	buf := make([]byte, 1<<16)
	n, _ := w.file.ReadAt(buf, w.at) // the end of the file is no error here
	w.at += int64(n)
	return w.note(buf[:n])
}

// all adds the steps of later files. Call it after the daemon has ended.
func (w *heldWatch) all(t *testing.T) []string {
	t.Helper()
	w.look()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(w.file.Name()), "*.jsonl"))
	if err != nil {
		t.Error(err)
	}
	slices.Sort(files)
	for _, name := range files {
		if name > w.file.Name() {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
			}
			w.rest = nil // a truncated record is complete in the next file or missing
			w.note(b)
		}
	}
	return w.seen
}

// note notes the steps in what was read next.
func (w *heldWatch) note(read []byte) []string {
	w.rest = append(w.rest, read...)
	for {
		line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return w.seen
		}
		w.rest = rest
		var r struct{ Kind, Action, Decision string }
		switch {
		case json.Unmarshal(line, &r) != nil:
		case strings.HasPrefix(r.Action, "approval."):
			w.seen, w.grant = append(w.seen, r.Action), w.before+len(line)+1
		case r.Action == "tools/call":
			w.seen = append(w.seen, strings.TrimSuffix(r.Kind+" "+strings.TrimPrefix(r.Decision, "allow"), " "))
		}
		w.before = len(line) + 1
	}
}

// reach waits without a pause until n steps are on record, so that a kill comes before the
// next.
func (w *heldWatch) reach(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(mailSoon); len(w.look()) < n; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("record %d of the call does not come: %v", n, w.seen)
		}
	}
}

// round makes one call, approves it, and kills the daemon as soon as n steps are on record.
// waits: the caller waits for the approval; otherwise it comes back for it. A waiting
// caller continues at once when it is approved, so for a kill before that the next record
// does not fit into the file.
func (h *heldHouse) round(n int, waits bool) {
	id, w := len(h.rounds)+1, h.watch()
	done := h.call(id)
	var last *mailReply
	var operator sync.WaitGroup
	for step := range n {
		switch {
		case step == 1 && waits && n == 2:
			h.choke(w)
			operator.Go(func() { h.decide(h.n+1, "approve") })
		case step == 1 && !waits: // the caller is told that its call waits
			last, done = h.answer(done), nil
			fallthrough
		case step == 1:
			operator.Go(h.approve)
		case step == 2 && !waits:
			done = h.call(id)
		}
		w.reach(h.t, step+1)
	}
	if n == len(heldSteps) {
		last, done, h.grant = h.answer(done), nil, w.grant
	}
	h.d.kill()
	operator.Wait()
	if done != nil {
		last = h.answer(done)
	}
	h.rounds = append(h.rounds, heldRound{id: id, steps: slices.Clone(w.all(h.t)), ok: last.what() == "ok" && last.text == "called tally"})
	h.d.start()
	h.again(id, waits)
}

// approve approves the call that waits, unless the daemon is gone before.
func (h *heldHouse) approve() {
	for _, q := range h.pending() {
		h.decide(q.N, "approve")
	}
}

func (h *heldHouse) decide(n uint64, decision string) {
	if resp := h.operator(http.MethodPost, fmt.Sprint("/admin/v1/approvals/", n), `{"decision":"`+decision+`"}`); resp != nil {
		resp.Body.Close()
	}
}

// again: after the restart nothing waits, and the same call is asked about again and not
// done.
func (h *heldHouse) again(id int, waits bool) {
	h.t.Helper()
	if all := h.pending(); len(all) != 0 {
		h.t.Errorf("after the restart %d calls wait", len(all))
	}
	done := h.call(id)
	if !waits {
		h.answer(done)
	}
	h.settle("deny")
	if !waits {
		done = h.call(id)
	}
	if r := h.answer(done); r.rpc != 1403 {
		h.t.Errorf("after the restart call %d: %s", id, r)
	}
}

// executions counts the calls that the server saw, by id.
func (h *heldHouse) executions() map[int]int {
	b, err := os.ReadFile(filepath.Join(h.d.dir, "tally"))
	if err != nil {
		h.t.Fatal(err)
	}
	count := map[int]int{}
	for line := range bytes.Lines(b) {
		var args struct{ ID int }
		if err := json.Unmarshal(line, &args); err != nil || args.ID == 0 {
			h.t.Errorf("the server saw %q", line)
		}
		count[args.ID]++
	}
	return count
}

// killedBehind reports whether the daemon was killed after exactly n records in some round.
func (h *heldHouse) killedBehind(n int) bool {
	return slices.ContainsFunc(h.rounds, func(r heldRound) bool { return len(r.steps) == n })
}

// check checks all rounds. It returns how often the daemon was killed after each number of
// records.
func (h *heldHouse) check() (killed map[int]int) {
	ran, killed := h.executions(), map[int]int{}
	asked := 0
	for _, r := range h.rounds {
		n := len(r.steps)
		killed[n]++
		if n > len(heldSteps) || !slices.Equal(r.steps, heldSteps[:min(n, len(heldSteps))]) {
			h.t.Errorf("call %d: the record has %q", r.id, r.steps)
		}
		decided := slices.Contains(r.steps, "decision")
		if ran[r.id] > 1 || ran[r.id] == 1 && !decided || r.ok && ran[r.id] != 1 {
			h.t.Errorf("call %d ran %d times, with %q on record; answered: %v", r.id, ran[r.id], r.steps, r.ok)
		}
		if n > 0 && !decided {
			asked++
		}
	}
	out, status := h.d.human("doorward", "log", "--json", "--tool", "tally", "--since", "24h")
	got := 0
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"action":"approval.asked"`) && strings.Contains(line, `"outcome":"pending"`) {
			got++
		}
	}
	if status != 0 || got != asked {
		h.t.Errorf("the log names %d calls that were asked about and not done, want %d: status %d\n%s", got, asked, status, out)
	}
	if out, status := h.d.human("doorward", "audit", "verify"); status != 0 {
		h.t.Errorf("audit verify: status %d\n%s", status, out)
	}
	return killed
}

// kill -9 of the daemon between each two records of a held call: the server sees the call
// at most once, and only after the decision is on record. The record names the calls that
// were asked about and not done. After the restart no call waits, and the same call is
// asked about again.
func TestAHeldCallRunsAtMostOnceUnderKills(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"a caller that waits": true, "a caller that comes back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wait := "1ms"
			if waits {
				wait = "5m"
			}
			h := startHeld(t, wait)
			if waits {
				h.round(len(heldSteps), waits) // an approval is measured
			}
			for range heldRounds {
				for n := range len(heldSteps) + 1 {
					h.round(n, waits)
				}
			}
			for n, tries := 1, 0; n <= len(heldSteps) && tries < 20; { // a kill may come too late
				if h.killedBehind(n) {
					n++
					continue
				}
				h.round(n, waits)
				tries++
			}
			killed := h.check()
			for n := 1; n <= len(heldSteps); n++ {
				if killed[n] == 0 {
					t.Errorf("the daemon was never killed behind record %d: %v", n, killed)
				}
			}
			t.Logf("killed, by the number of records: %v", killed)
		})
	}
}
