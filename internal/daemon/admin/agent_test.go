package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// book is a fake of the operator's side that keeps each call and its caller.
type book struct {
	asked []string
	by    agent.Caller
	err   error
}

func (b *book) say(by agent.Caller, format string, a ...any) error {
	b.asked, b.by = append(b.asked, fmt.Sprintf(format, a...)), by
	return b.err
}

func (b *book) Peers(_ context.Context, by agent.Caller) ([]agent.PeerInfo, error) {
	return nil, b.say(by, "peers")
}
func (b *book) Show(_ context.Context, by agent.Caller, peer string) (*agent.PeerInfo, error) {
	return &agent.PeerInfo{Name: peer}, b.say(by, "show %s", peer)
}
func (b *book) Retire(_ context.Context, by agent.Caller, peer string) (*agent.PeerInfo, error) {
	return &agent.PeerInfo{Name: peer}, b.say(by, "retire %s", peer)
}
func (b *book) Send(_ context.Context, by agent.Caller, d agent.OperatorDraft) (*agent.OperatorSent, error) {
	return &agent.OperatorSent{To: d.To}, b.say(by, "send %+v", d)
}
func (b *book) Inbox(_ context.Context, by agent.Caller, peer string, bodies, ack bool) (*agent.Inbox, error) {
	return &agent.Inbox{}, b.say(by, "inbox %q bodies=%v ack=%v", peer, bodies, ack)
}
func (b *book) Tail(_ context.Context, by agent.Caller, peer string, after int64, waitMS int) (*agent.Tailed, error) {
	return &agent.Tailed{After: after + 1}, b.say(by, "tail %q after %d wait %d", peer, after, waitMS)
}
func (b *book) Trace(_ context.Context, by agent.Caller, id string) (*agent.Traced, error) {
	return &agent.Traced{}, b.say(by, "trace %s", id)
}
func (b *book) Holds(_ context.Context, by agent.Caller) ([]agent.Message, error) {
	return nil, b.say(by, "holds")
}
func (b *book) Settle(_ context.Context, by agent.Caller, what, id string) ([]mail.Settled, error) {
	return nil, b.say(by, "%s %s", what, id)
}
func (b *book) Pause(_ context.Context, by agent.Caller, peer string, on bool) (*agent.PeerInfo, error) {
	return &agent.PeerInfo{}, b.say(by, "pause %s %v", peer, on)
}
func (b *book) Transfer(_ context.Context, by agent.Caller, peer, to string) (*agent.PeerInfo, error) {
	return &agent.PeerInfo{}, b.say(by, "transfer %s to %s", peer, to)
}
func (b *book) Fsck(_ context.Context, by agent.Caller, repair bool) (*agent.Checked, error) {
	return &agent.Checked{}, b.say(by, "fsck %v", repair)
}

// office serves the paths of one book. above and complete are what is known of the
// caller's processes.
type office struct {
	book     *book
	above    []string
	complete bool
	entered  []string // what passed the gate in here
	refuse   error    // what the gate says
}

func (f *office) options() Options {
	return Options{
		Enter: func(_ *http.Request, _ *principal.Principal, what string) (func(), error) {
			f.entered = append(f.entered, what)
			return func() {}, f.refuse
		},
		Messaging: Messaging{Agents: f.book,
			Above: func(*http.Request) ([]string, bool) { return f.above, f.complete },
			Hook: func(_ context.Context, who *principal.Principal, processes []string) (agent.HookCounts, error) {
				return agent.HookCounts{Known: true, Unread: len(processes)}, f.book.err
			}},
	}
}

func (f *office) ask(t *testing.T, method, target, kind, body string) (int, string) {
	t.Helper()
	path, _, _ := strings.Cut(target, "?")
	serve := Paths(f.options())[path]
	if serve == nil {
		t.Fatalf("nothing is served at %s", path)
	}
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	w := httptest.NewRecorder()
	serve(w, r, principal.New("uid:1"))
	return w.Code, w.Body.String()
}

const inJSON = "application/json"

// Each request makes one call to the operator's side, with the caller, its
// processes and whether all of them are known.
func TestEachRequestMakesOneCallWithTheCallersProcesses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ method, target, body, want string }{
		{"GET", "/admin/v1/agent/peers", "", "peers"},
		{"GET", "/admin/v1/agent/peers?peer=a%2Fb%40c", "", "show a/b@c"},
		{"POST", "/admin/v1/agent/retire", `{"peer":"a"}`, "retire a"},
		{"POST", "/admin/v1/agent/send", `{"to":"a","subject":"s","body":"b","ttl_s":60}`, "send {To:a Subject:s Body:b ReplyTo: TTL:60}"},
		{"GET", "/admin/v1/agent/inbox", "", `inbox "" bodies=false ack=false`},
		{"GET", "/admin/v1/agent/inbox?peer=a", "", `inbox "a" bodies=false ack=false`},
		{"GET", "/admin/v1/agent/inbox?peer=a&bodies=true", "", `inbox "a" bodies=true ack=false`},
		{"POST", "/admin/v1/agent/inbox", `{"ack":true}`, `inbox "" bodies=true ack=true`},
		{"GET", "/admin/v1/agent/trace?message_id=m", "", "trace m"},
		{"GET", "/admin/v1/agent/hold", "", "holds"},
		{"POST", "/admin/v1/agent/hold", `{"do":"approve","message_id":"m"}`, "approve m"},
		{"POST", "/admin/v1/agent/hold", `{"do":"purge","message_id":"m"}`, "purge m"},
		{"POST", "/admin/v1/agent/pause", `{"peer":"a","paused":true}`, "pause a true"},
		{"POST", "/admin/v1/agent/transfer", `{"peer":"a","to":"uid:2"}`, "transfer a to uid:2"},
		{"GET", "/admin/v1/agent/fsck", "", "fsck false"},
		{"POST", "/admin/v1/agent/fsck", `{"repair":true}`, "fsck true"},
	} {
		f := &office{book: &book{}, above: []string{"boot/2@3", "boot/1@1"}, complete: true}
		status, body := f.ask(t, tc.method, tc.target, inJSON, tc.body)
		if status != http.StatusOK || len(f.book.asked) != 1 || f.book.asked[0] != tc.want {
			t.Errorf("%s %s %s: %d %s, asked %q", tc.method, tc.target, tc.body, status, body, f.book.asked)
		}
		by := f.book.by
		if by.Who.Name() != "uid:1" || len(by.Processes) != 2 || !by.Complete || len(f.entered) != 0 {
			t.Errorf("%s %s: asked by %+v, entered %q", tc.method, tc.target, by, f.entered)
		}
		if strings.Contains(body, "null") {
			t.Errorf("%s %s: a list is null: %s", tc.method, tc.target, body)
		}
	}
}

// A request of an unknown form is refused before anything is done. It passes the
// gate as well, so that it is recorded.
func TestAMalformedRequestIsRefusedAndRecorded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ method, target, kind, body string }{
		{"GET", "/admin/v1/agent/peers?pear=a", "", ""},
		{"GET", "/admin/v1/agent/peers?peer=a&peer=b", "", ""},
		{"GET", "/admin/v1/agent/peers?peer=%zz", "", ""},
		{"GET", "/admin/v1/agent/inbox?peer=a&bodies=1", "", ""},
		{"GET", "/admin/v1/agent/tail?after=0", "", ""},
		{"POST", "/admin/v1/agent/send", inJSON, ``},
		{"POST", "/admin/v1/agent/send", inJSON, `{"to":"a","body":"b","from":"planner"}`},
		{"POST", "/admin/v1/agent/send", inJSON, `{"to":"a","body":"b","authority":"operator"}`},
		{"POST", "/admin/v1/agent/send", inJSON, `{"to":"a","body":"b"} {"to":"c"}`},
		{"POST", "/admin/v1/agent/send", inJSON, `{"to":"a","body":"b"}]`},
		{"POST", "/admin/v1/agent/send", inJSON, `["a"]`},
		{"POST", "/admin/v1/agent/hold", inJSON, `{"do":"deliver","message_id":"m"}`},
		{"POST", "/admin/v1/agent/hold", inJSON, `{"do":"approve"}`},
		{"POST", "/admin/v1/agent/fsck", inJSON, `{"repair":"yes"}`},
	} {
		f := &office{book: &book{}}
		if status, body := f.ask(t, tc.method, tc.target, tc.kind, tc.body); status != http.StatusBadRequest || len(f.book.asked) != 0 || len(f.entered) != 1 {
			t.Errorf("%s %s %s: %d %s, asked %q, entered %q", tc.method, tc.target, tc.body, status, body, f.book.asked, f.entered)
		}
		f = &office{book: &book{}, refuse: &gate.Refusal{Code: gate.CodeDenied}}
		if status, _ := f.ask(t, tc.method, tc.target, tc.kind, tc.body); status != http.StatusForbidden {
			t.Errorf("%s %s of a caller that the gate refuses: %d", tc.method, tc.target, status)
		}
	}
	f := &office{book: &book{}}
	if status, _ := f.ask(t, "POST", "/admin/v1/agent/send", inJSON, `{"to":"a","body":"`+strings.Repeat("x", maxAct)+`"}`); status != http.StatusRequestEntityTooLarge || len(f.book.asked) != 0 {
		t.Errorf("a body without end: %d", status)
	}
}

// Only a POST in JSON acts. A page in a browser can send a GET, or a POST of
// another media type, to another origin without a preflight request.
func TestOnlyAPostInJSONActs(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"retire", "send", "pause", "transfer"} {
		f := &office{book: &book{}}
		if status, _ := f.ask(t, "GET", "/admin/v1/agent/"+path, "", ""); status != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, status)
		}
	}
	for _, path := range []string{"retire", "send", "inbox", "hold", "pause", "transfer", "fsck"} {
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json-seq"} {
			f := &office{book: &book{}}
			if status, _ := f.ask(t, "POST", "/admin/v1/agent/"+path, kind, `{}`); status != http.StatusUnsupportedMediaType || len(f.book.asked) != 0 {
				t.Errorf("POST %s as %q: %d", path, kind, status)
			}
		}
	}
	for _, path := range []string{"peers", "tail", "trace"} {
		f := &office{book: &book{}}
		if status, _ := f.ask(t, "POST", "/admin/v1/agent/"+path, inJSON, "{}"); status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, status)
		}
	}
}

func TestRefusalsHaveAStatusAndAConstantWord(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err      error
		complete bool
		status   int
		want     Failure
	}{
		{&gate.Refusal{Code: gate.CodeDenied, Ref: 7}, true, 403, Failure{Code: "NOT_ALLOWED", Ref: 7}},
		{&gate.Refusal{Code: gate.CodeRate, Wait: time.Second}, true, 429, Failure{Code: "NOT_ALLOWED"}},
		{&gate.Refusal{Code: gate.CodeUnavailable}, true, 503, Failure{Code: "NOT_ALLOWED"}},
		{agent.ErrAgentShell, true, 403, Failure{Code: "AGENT_SHELL", Why: "agent"}},
		{agent.ErrAgentShell, false, 403, Failure{Code: "AGENT_SHELL", Why: "unknown"}},
		{&mail.Error{Code: mail.UnknownRecipient}, true, 404, Failure{Code: mail.UnknownRecipient}},
		{&mail.Error{Code: mail.MailboxFull, Err: errors.New("secret detail")}, true, 409, Failure{Code: mail.MailboxFull}},
		{&mail.Error{Code: mail.InvalidArgument}, true, 400, Failure{Code: mail.InvalidArgument}},
		{&mail.Error{Code: mail.StoreUnavailable, Err: errors.New("secret detail")}, true, 503, Failure{Code: mail.StoreUnavailable}},
		{errors.New("secret detail"), true, 500, Failure{}},
	} {
		f := &office{book: &book{err: tc.err}, complete: tc.complete}
		status, body := f.ask(t, "GET", "/admin/v1/agent/hold", "", "")
		var got Failure
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if tc.want.Error = http.StatusText(tc.status); status != tc.status || got != tc.want {
			t.Errorf("%v: %d %+v, want %d %+v", tc.err, status, got, tc.status, tc.want)
		}
	}
}

func TestTheHookIsAnsweredWithoutAGateOfTheOperators(t *testing.T) {
	t.Parallel()
	f := &office{book: &book{}, above: []string{"boot/2@3", "boot/1@1"}, refuse: &gate.Refusal{Code: gate.CodeDenied}}
	status, body := f.ask(t, "POST", "/agent/v1/hook", inJSON, "{}")
	if want := `{"known":true,"unread":2,"newest":0,"tell":false}`; status != http.StatusOK || strings.TrimSpace(body) != want {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	if len(f.entered) != 0 || len(f.book.asked) != 0 {
		t.Errorf("entered %q, asked %q", f.entered, f.book.asked)
	}
}

// A caller that may not read a mailbox gets a refusal without counts.
func TestARefusedHookIsToldNoCounts(t *testing.T) {
	t.Parallel()
	f := &office{book: &book{err: &gate.Refusal{Code: gate.CodeDenied, Ref: 7}}, above: []string{"boot/1@1"}}
	status, body := f.ask(t, "POST", "/agent/v1/hook", inJSON, "{}")
	if status != http.StatusForbidden || !strings.Contains(body, `"code":"NOT_ALLOWED"`) || strings.Contains(body, "unread") {
		t.Errorf("%d %s", status, body)
	}
}

func TestWithoutMessagingThereAreNoPathsOfIt(t *testing.T) {
	t.Parallel()
	for path := range Paths(Options{}) {
		if strings.Contains(path, "agent") {
			t.Errorf("%s is served", path)
		}
	}
}
