package upstream

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// fakeServer is a stdio server for tests. Its mode decides about the
// connection, the tool that is called about one call.
func fakeServer(args []string) int {
	mode := args[0]
	s := &fakeChild{mode: mode, in: bufio.NewReaderSize(os.Stdin, 1<<20), cancelled: map[string]bool{}}
	s.heard = sync.NewCond(&s.mu)
	switch mode {
	case "quick":
		return quickServer()
	case "quick-web", "quick-events", "quick-listen":
		return quickWeb(mode)
	case "ledger":
		return ledgerServer(args[1])
	case "deaf": // never reads
		select {}
	case "exit":
		return 3
	case "endless":
		s.endless()
		return 0
	case "chatter":
		for range 50 {
			s.raw("starting up: not JSON\n")
		}
	case "flood":
		for range floodLimit / 1024 {
			s.raw(strings.Repeat("not JSON\n", 128))
		}
	}
	return s.run()
}

// floodLimit is a limit of messages that the mode flood exceeds.
const floodLimit = 1 << 20

type fakeChild struct {
	mode string
	in   *bufio.Reader

	mu        sync.Mutex // guards what follows, and standard output
	cancelled map[string]bool
	answers   []string   // raw responses of the client
	heard     *sync.Cond // of mu: an answer or a cancellation has come
	wait      sync.WaitGroup
}

type fakeMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func (s *fakeChild) raw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	io.WriteString(os.Stdout, text)
}

func (s *fakeChild) result(id json.RawMessage, result string) {
	s.raw(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + "}\n")
}

func (s *fakeChild) text(id json.RawMessage, text string) {
	quoted, _ := json.Marshal(text)
	s.result(id, `{"content":[],"text":`+string(quoted)+`}`)
}

func (s *fakeChild) fail(id json.RawMessage, code int, message string) {
	s.raw(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`+"\n", id, code, message))
}

func (s *fakeChild) notify(method, params string) {
	s.raw(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + "}\n")
}

func (s *fakeChild) endless() {
	line := strings.Repeat("x", 1<<20)
	for {
		if _, err := io.WriteString(os.Stdout, line); err != nil {
			return
		}
	}
}

func (s *fakeChild) run() int {
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			s.wait.Wait()
			return 0
		}
		var m fakeMessage
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			fmt.Fprintln(os.Stderr, "bad line:", err)
			return 9
		}
		if code, exit := s.handle(m, line); exit {
			return code
		}
	}
}

func (s *fakeChild) handle(m fakeMessage, line string) (code int, exit bool) {
	switch m.Method {
	case "":
		s.mu.Lock()
		s.answers = append(s.answers, strings.TrimSpace(line))
		s.mu.Unlock()
		s.heard.Broadcast()
	case methodInitialize:
		return s.initialize(m)
	case methodDiscover:
		return s.discover(m)
	case methodCancelled:
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		json.Unmarshal(m.Params, &p)
		s.mu.Lock()
		s.cancelled[string(p.RequestID)] = true
		s.mu.Unlock()
		s.heard.Broadcast()
	case methodListen:
		s.listen(m)
	case "tools/call":
		return s.tool(m)
	case methodInitialized:
		if s.mode == "ping-first" {
			s.raw(`{"jsonrpc":"2.0","id":"p1","method":"ping"}` + "\n")
		}
	default:
		if m.ID != nil {
			s.fail(m.ID, codeMethodNotFound, "Method not found")
		}
	}
	return 0, false
}

func (s *fakeChild) initialize(m fakeMessage) (code int, exit bool) {
	version := "2025-11-25"
	switch s.mode {
	case "refuse":
		s.fail(m.ID, -32022, "modern only")
		return 0, false
	case "future":
		version = "2026-07-28"
	case "batch":
		version = "2025-03-26"
	case "hang":
		return 0, false
	case "crash-on-init":
		return 4, true
	case "crash-on-evil":
		if strings.Contains(string(m.Params), "evil") {
			return 4, true
		}
	case "early":
		s.notify("notifications/message", `{"level":"info","data":"early"}`)
	}
	s.result(m.ID, `{"protocolVersion":"`+version+`","capabilities":{},"serverInfo":{"name":"fake","version":"1"},"pid":`+fmt.Sprint(os.Getpid())+`}`)
	return 0, false
}

func (s *fakeChild) discover(m fakeMessage) (code int, exit bool) {
	versions := `["2026-07-28"]`
	switch s.mode {
	case "exit-on-discover":
		return 5, true
	case "silent-on-discover":
		return 0, false
	case "legacy-list":
		versions = `["2025-11-25","2025-06-18"]`
	case "unsupported":
		s.raw(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32022,"message":"no","data":{"supported":["2027-01-01"],"requested":"2026-07-28"}}}` + "\n")
		return 0, false
	case "missing-capability":
		s.fail(m.ID, -32021, "need more")
		return 0, false
	case "modern":
	default:
		s.fail(m.ID, codeMethodNotFound, "Method not found")
		return 0, false
	}
	s.result(m.ID, `{"resultType":"complete","supportedVersions":`+versions+`,"capabilities":{},"ttlMs":0,"cacheScope":"private"}`)
	return 0, false
}

// listen acknowledges, sends one change for each subscription, and ends those
// that ask for it.
func (s *fakeChild) listen(m fakeMessage) {
	meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `}`
	s.notify("notifications/subscriptions/acknowledged", `{`+meta+`}`)
	s.notify("notifications/tools/list_changed", `{`+meta+`}`)
	if strings.Contains(string(m.Params), "end-me") {
		s.notify(methodCancelled, `{"requestId":`+string(m.ID)+`}`)
	}
	if strings.Contains(string(m.Params), "finish-me") {
		s.text(m.ID, "complete")
	}
}

func (s *fakeChild) tool(m fakeMessage) (code int, exit bool) {
	var p struct {
		Name      string                     `json:"name"`
		Arguments map[string]json.RawMessage `json:"arguments"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	json.Unmarshal(m.Params, &p)
	id := string(m.ID)
	switch p.Name {
	case "echo":
		s.result(m.ID, string(m.Params))
	case "crash":
		return 6, true
	case "close-stdin":
		s.text(m.ID, "closing")
		os.Stdin.Close()
		time.Sleep(time.Hour)
	case "stop-reading":
		s.text(m.ID, "stopped")
		time.Sleep(time.Hour)
	case "hang":
	case "raw":
		var raw string
		json.Unmarshal(p.Arguments["line"], &raw)
		s.raw(strings.ReplaceAll(raw, "$ID", id) + "\n")
	case "huge":
		var n int
		json.Unmarshal(p.Arguments["size"], &n)
		s.text(m.ID, strings.Repeat("a", n))
	case "elicit":
		s.raw(`{"jsonrpc":"2.0","id":"e-1","method":"elicitation/create","params":{"message":"who?"}}` + "\n")
		s.later(func() {
			s.text(m.ID, s.awaitAnswer(`"e-1"`))
		})
	case "elicit-hang":
		s.raw(`{"jsonrpc":"2.0","id":"e-1","method":"elicitation/create","params":{"message":"who?"}}` + "\n")
	case "progress":
		for i := range 3 {
			s.notify(methodProgress, fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, p.Meta.ProgressToken, i+1))
		}
		s.notify(methodProgress, `{"progressToken":"stolen","progress":1}`)
		s.text(m.ID, string(p.Meta.ProgressToken))
	case "slow-progress":
		s.later(func() {
			for i := range 6 {
				time.Sleep(slowProgress)
				s.notify(methodProgress, fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, p.Meta.ProgressToken, i+1))
			}
			s.text(m.ID, "done")
		})
	case "late":
		s.later(func() {
			s.awaitCancel(id)
			s.text(m.ID, "late")
		})
	case "was-cancelled":
		var n json.RawMessage = p.Arguments["id"]
		s.mu.Lock()
		yes := s.cancelled[string(n)]
		s.mu.Unlock()
		s.text(m.ID, fmt.Sprint(yes))
	case "answers":
		s.mu.Lock()
		all := strings.Join(s.answers, "\n")
		s.mu.Unlock()
		s.text(m.ID, all)
	case "complain":
		fmt.Fprintln(os.Stderr, "oh no")
		s.text(m.ID, "complained")
	default:
		s.fail(m.ID, codeInvalidParams, "unknown tool")
	}
	return 0, false
}

// slowProgress is the time before each of the six notices of the tool slow-progress.
const slowProgress = 600 * time.Millisecond

func (s *fakeChild) later(f func()) {
	s.wait.Add(1)
	go func() {
		defer s.wait.Done()
		f()
	}()
}

// awaitAnswer is the client's response with the given raw id.
func (s *fakeChild) awaitAnswer(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for _, a := range s.answers {
			if strings.Contains(a, `"id":`+id) {
				return a
			}
		}
		s.heard.Wait()
	}
}

func (s *fakeChild) awaitCancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.cancelled[id] {
		s.heard.Wait()
	}
}
