package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// posts sends requests from this process, and prints the status of each.
func posts(sock, file string) error {
	lines, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", sock)
	}}}
	for line := range strings.Lines(string(lines)) {
		path, body, _ := strings.Cut(strings.TrimSpace(line), " ")
		resp, err := c.Post("http://localhost"+path, "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %s %s\n", resp.StatusCode, path, answer)
	}
	return nil
}

// attempt is one request of the operator's about a held message: the path of the local API
// with a body, or of the console with a form. In it ID, N, PREVIEW, PEER and ME stand for
// the message, its number, the digest of what was shown, its recipient, and the user.
type attempt struct{ route, body string }

// attempts are the requests by which the operator acts. Each request in the source is here,
// with those bodies that come nearest to delivering a held message.
var attempts = []attempt{
	{"/admin/v1/approvals/", `{"decision":"approve","preview":"PREVIEW"}`},
	{"/admin/v1/approvals/", `{"decision":"approve"}`},
	{"/admin/v1/grants", `{"id":"ID"}`},
	{"/admin/v1/agent/hold", `{"do":"approve","message_id":"ID"}`},
	{"/admin/v1/agent/hold", `{"do":"requeue","message_id":"ID"}`},
	{"/admin/v1/agent/pause", `{"peer":"PEER","paused":false}`},
	{"/admin/v1/agent/transfer", `{"peer":"PEER","to":"ME"}`},
	{"/admin/v1/agent/fsck", `{"repair":true}`},
	{"/admin/v1/agent/inbox", `{"ack":true}`},
	{"/admin/v1/agent/send", `{"to":"PEER","body":"something else","reply_to":"ID"}`},
	{"/agent/v1/hook", `{}`},
	{"/admin/v1/agent/stop", `{"spawn":"PEER"}`},
	{"/admin/v1/servers/restart", `{"server":"agent"}`},
	{"/admin/v1/trust", `{"server":"agent"}`},
	{"/admin/v1/trust/look", `{"server":"agent"}`},
	{"/admin/v1/audit/prune", `{"days":9000}`},
	{"/admin/v1/ui", `{}`},
	{"POST /decisions/call", "n=N&preview=PREVIEW&decision=approve&for=once"},
	{"POST /decisions/call", "n=N&preview=PREVIEW&decision=approve&for=forever"},
	{"POST /decisions/call", "n=N&preview=PREVIEW&decision=approve&for=once&ceremony=A&answer={}"},
	{"POST /decisions/message", "do=approve&message=ID"},
	{"POST /decisions/message", "do=requeue&message=ID"},
	{"POST /decisions/trust", "server=agent&digest=PREVIEW"},
	{"POST /agents/pause", "peer=PEER&paused=0"},
	{"POST /agents/send", "to=PEER&body=something+else+too"},
	{"POST /agents/stop", "spawn=PEER"},
	{"POST /servers/restart", "server=agent"},
	{"POST /servers/look", "server=agent"},
	{"POST /instructions/move", "name=x&label=production&revision=x"},
	{"POST /passkeys/begin", "what=approve&n=N&preview=PREVIEW&for=once"},
	{"POST /passkeys/allow", "name=x&ceremony=A&answer={}"},
	{"POST /passkeys/add", "name=x&ceremony=A&answer={}"},
	{"POST /passkeys/remove", "key=x&ceremony=A&answer={}"},
	// The acts that end the message or the session come last.
	{"/admin/v1/agent/hold", `{"do":"refuse","message_id":"ID"}`},
	{"/admin/v1/agent/hold", `{"do":"purge","message_id":"ID"}`},
	{"/admin/v1/agent/retire", `{"peer":"PEER"}`},
	{"POST /sign-out", ""},
	{"/admin/v1/ui/sign-out", `{}`},
}

// TestEveryActOfTheOperatorIsTried: the list above has each path of the source under which
// the operator acts.
func TestEveryActOfTheOperatorIsTried(t *testing.T) {
	t.Parallel()
	reads := []string{"/admin/v1/status", "/admin/v1/explain", "/admin/v1/policy", "/admin/v1/whoami", "/admin/v1/audit/kept", "/admin/v1/passkeys",
		"/admin/v1/agent/peers", "/admin/v1/agent/tail", "/admin/v1/agent/trace", "/admin/v1/approvals"}
	known := append(reads, "/admin/v1/agent/", "/admin/v1/approvals/")
	for _, a := range attempts {
		known = append(known, a.route)
	}
	found := 0
	for dir, form := range map[string]string{"admin": `"((?:/admin/v1|/agent/v1)/[a-z/-]+)"`, "console": `"(POST /[a-z/-]+)"`} {
		files, err := filepath.Glob("../../internal/daemon/" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(form).FindAllSubmatch(b, -1) {
				if found++; !strings.HasSuffix(f, "_test.go") && !slices.Contains(known, string(m[1])) {
					t.Errorf("%s serves %s: say in attempts how it could let a held message in", f, m[1])
				}
			}
		}
	}
	if found < len(attempts)/2 {
		t.Errorf("the source has %d paths", found)
	}
}

// releasing is one daemon with a held message for each attempt.
type releasing struct {
	t      *testing.T
	d      *mailDaemon
	sender *mailClient
	cases  []releaseCase
	form   url.Values // csrf
	cookie string
}

// releaseCase is one attempt at one message.
type releaseCase struct {
	attempt
	to   *mailClient
	text string // of the message
	fill *strings.Replacer
}

// startReleasing starts a daemon with a held message for each attempt, each to a peer of
// its own. They are held because the peer asked for it, or, with paused, because it is
// paused. hold is how long.
func startReleasing(t *testing.T, presence, hold string, paused bool) *releasing {
	r := &releasing{t: t, d: startMail(t, "release", mailConfig("release", "", "  hold: "+hold+"\n"+roomy)+"approvals: {presence: "+presence+"}\n")}
	agents := r.d.proxy("agents")
	r.sender = r.d.client(agents).mustOpen()
	r.sender.register("planner")
	var pauses strings.Builder
	peers := make([]mailRegistered, len(attempts))
	for i, a := range attempts {
		to := r.d.client(agents).mustOpen()
		inbound := obj{"name": fmt.Sprint("p", i)}
		if !paused {
			inbound["inbound"] = "hold"
		}
		to.must("register", inbound).into(t, &peers[i])
		fmt.Fprintf(&pauses, "/admin/v1/agent/pause {\"peer\":%q,\"paused\":true}\n", peers[i].PeerID)
		r.cases = append(r.cases, releaseCase{attempt: a, to: to, text: fmt.Sprint("held-", i)})
	}
	if paused {
		r.post(pauses.String())
	}
	for i := range r.cases {
		sent := r.sender.send(fmt.Sprint("p", i), r.cases[i].text)
		if sent.Deliveries[0].State != "held" {
			t.Fatalf("%+v", sent)
		}
		r.cases[i].fill = strings.NewReplacer("ID", sent.MessageID, "PEER", peers[i].PeerID, "ME", "uid:"+strconv.Itoa(os.Getuid()))
	}
	return r
}

// post sends requests from a person's terminal.
func (r *releasing) post(lines string) string {
	r.t.Helper()
	r.d.write("posts", lines)
	out := r.person("pty", "stranger", "posts", r.d.address(true), filepath.Join(r.d.dir, "posts"))
	if strings.Contains(out, "AGENT_SHELL") || strings.Contains(out, "NO_TERMINAL") {
		r.t.Fatal(out)
	}
	return out
}

// person runs a command from a login that began before the agents, and returns what it
// printed.
func (r *releasing) person(argv ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), mailSoon)
	defer cancel()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		r.t.Fatal(err)
	}
	out, errs, status, err := residentRun(ctx, residentJob{Dir: r.d.dir, Env: r.d.env, Argv: append([]string{path}, argv[1:]...)})
	if err != nil || status != "0" {
		r.t.Fatalf("%q: %v, status %s\n%s%s", argv, err, status, out, errs)
	}
	return out
}

// numbers adds the numbers and previews of the pending messages to the cases.
func (r *releasing) numbers() {
	r.t.Helper()
	out := r.person("doorward", "pending", "--json")
	var all []struct {
		N             uint64
		Preview       string
		Time, Expires time.Time
		Args          struct {
			ID string `json:"message_id"`
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	for _, q := range all {
		if q.Expires.Sub(q.Time) > time.Hour {
			r.t.Errorf("message %d is said to wait from %s to %s", q.N, q.Time, q.Expires)
		}
		for i := range r.cases {
			if id := r.cases[i].fill.Replace("ID"); id == q.Args.ID {
				c := &r.cases[i]
				c.fill = strings.NewReplacer("ID", id, "PEER", c.fill.Replace("PEER"), "ME", c.fill.Replace("ME"), "PREVIEW", q.Preview, "N", fmt.Sprint(q.N))
			}
		}
	}
}

// signIn signs in to the console.
func (r *releasing) signIn() {
	r.t.Helper()
	out := r.person("doorward", "ui", "--print")
	_, code, _ := strings.Cut(strings.TrimSpace(out), "#")
	resp := r.console("session", url.Values{"code": {code}})
	if r.cookie, _, _ = strings.Cut(resp.Header.Get("Set-Cookie"), ";"); r.cookie == "" {
		r.t.Fatalf("not signed in: %s %s", out, resp.Status)
	}
	req, err := http.NewRequest(http.MethodGet, r.d.url+"/ui/", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Cookie", r.cookie)
	page, err := doortest.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer page.Body.Close()
	b, _ := io.ReadAll(page.Body)
	m := regexp.MustCompile(`name="csrf" value="([A-Z2-7]{26})"`).FindSubmatch(b)
	if m == nil {
		r.t.Fatalf("not signed in: %s %s", page.Status, b)
	}
	r.form = url.Values{"csrf": {string(m[1])}}
}

// console sends a form.
func (r *releasing) console(path string, form url.Values) *http.Response {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.d.url+"/ui/"+path, strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Origin", r.d.url)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Cookie", r.cookie)
	resp, err := doortest.Client().Transport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// try makes all attempts, and returns those after which the message was delivered.
func (r *releasing) try() []string {
	r.t.Helper()
	r.signIn()
	var lines strings.Builder
	for _, c := range r.cases {
		path, isForm := strings.CutPrefix(c.route, "POST /")
		if !isForm {
			if strings.HasSuffix(path, "/") {
				path += c.fill.Replace("N")
			}
			fmt.Fprintf(&lines, "%s %s\n", path, c.fill.Replace(c.body))
			continue
		}
		form, err := url.ParseQuery(c.fill.Replace(c.body))
		if err != nil {
			r.t.Fatal(err)
		}
		maps.Copy(form, r.form)
		if resp := r.console(path, form); resp.StatusCode == http.StatusUnauthorized {
			r.t.Errorf("%s: %s", path, resp.Status)
		}
	}
	r.t.Logf("%s", r.post(lines.String()))
	var delivered []string
	for _, c := range r.cases {
		got := c.to.call("inbox", obj{"peek": true, "format": "json"})
		if strings.Contains(string(got.raw), c.text) {
			delivered = append(delivered, c.route+" "+c.body)
		}
	}
	return delivered
}

// TestAHeldMessageTakesAPasskey: with presence passkey, no request of the operator without
// an answer of an authenticator delivers a held message, whatever the reason for the hold,
// nor one whose hold has ended. With presence terminal, exactly the requests in want do.
func TestAHeldMessageTakesAPasskey(t *testing.T) {
	t.Parallel()
	if r := theResident(); r.err != nil {
		t.Fatal(r.err)
	}
	approve := []string{`/admin/v1/approvals/ {"decision":"approve","preview":"PREVIEW"}`, `/admin/v1/approvals/ {"decision":"approve"}`,
		`/admin/v1/agent/hold {"do":"approve","message_id":"ID"}`,
		"POST /decisions/call n=N&preview=PREVIEW&decision=approve&for=once", "POST /decisions/call n=N&preview=PREVIEW&decision=approve&for=once&ceremony=A&answer={}"}
	for kind, want := range map[string][]string{
		"inbound": approve,
		"paused":  append(slices.Clone(approve), `/admin/v1/agent/pause {"peer":"PEER","paused":false}`, "POST /agents/pause peer=PEER&paused=0"),
		"expired": {`/admin/v1/agent/hold {"do":"requeue","message_id":"ID"}`, "POST /decisions/message do=requeue&message=ID"},
	} {
		for _, presence := range []string{"terminal", "passkey"} {
			t.Run(kind+" "+presence, func(t *testing.T) {
				t.Parallel()
				hold := "1h"
				if kind == "expired" {
					hold = "2s"
				}
				r := startReleasing(t, presence, hold, kind == "paused")
				if kind != "expired" {
					r.numbers()
				} else if !poll(mailSoon, func() bool { return r.person("doorward", "pending") == "nothing waits\n" }) {
					t.Fatal("no hold ends")
				}
				want := want
				if presence == "passkey" {
					want = nil
				}
				got := r.try()
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("delivered by\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}
