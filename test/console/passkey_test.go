package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/doorward/doorward/test/doortest"
)

// newVault is a daemon whose held calls can be approved only with a passkey.
func newVault(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, offers: t.TempDir() + "/offers.json"}
	h.offer("it adds things")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h.Daemon = doortest.Start(t, fmt.Sprintf("approvals: {presence: passkey, wait: 10m}\nmcpServers:\n  odd:\n    command: %s\n    env: {%s: %s}\n    doorward: {sandbox: \"off\", tools: {ask: [plain]}}\n",
		self, serverMode, h.offers), doortest.Options{})
	return h
}

// held is a call that waits for approval, made by a process other than the test.
type held struct {
	n    int
	over chan error
}

func (h *house) hold(n int) *held {
	h.t.Helper()
	cmd := h.Command("call", "odd", "plain", fmt.Sprintf("n=%d", n))
	cmd.Args = append([]string{"sh", "-c", `"$@"; exit $?`, "sh", cmd.Path}, cmd.Args[1:]...)
	sh, err := exec.LookPath("sh")
	if err != nil {
		h.t.Fatal(err)
	}
	cmd.Path = sh
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	c := &held{n: n, over: make(chan error, 1)}
	go func() { c.over <- cmd.Wait() }()
	h.t.Cleanup(func() { _ = cmd.Process.Kill() })
	within(h.t, 20*time.Second, "a call that waits", func() bool {
		return strings.Contains(h.run("pending"), fmt.Sprintf("\n%d  ", n)) || strings.HasPrefix(h.run("pending"), fmt.Sprintf("%d  ", n))
	})
	return c
}

func (c *held) waits() bool { return len(c.over) == 0 }

func (b *browser) authenticator(transport webauthn.AuthenticatorTransport) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, webauthn.Enable, webauthn.EnableParams{}); err != nil {
		b.t.Fatal(err)
	}
	yes := true
	o := &webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: transport,
		HasResidentKey: true, HasUserVerification: true, IsUserVerified: yes, AutomaticPresenceSimulation: yes}
	if _, err := chromedp.Call(b.ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: o}); err != nil {
		b.t.Fatal(err)
	}
}

// attempts is a script with the means of a hostile script in the console's own origin: it
// can sign for one thing and send another.
const attempts = `
window.csrf = () => document.querySelector('input[name=csrf]').value;
window.preview = (n) => document.querySelector('form[data-passkey] input[name=n][value="' + n + '"]').form.preview.value;
window.begin = async (f) => {
  const a = await fetch('/ui/passkeys/begin', {method: 'POST', body: new URLSearchParams({csrf: csrf(), what: 'approve', for: 'once', ...f})});
  return a.ok ? a.json() : {status: a.status};
};
window.sign = async (step) => JSON.stringify(await navigator.credentials.get({publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(step.options)}));
window.send = async (f) => {
  const a = await fetch('/ui/decisions/call', {method: 'POST', redirect: 'manual', body: new URLSearchParams({csrf: csrf(), decision: 'approve', for: 'once', ...f})});
  return a.type === 'opaqueredirect' ? 'done' : String(a.status);
};
window.forge = async (signed, sent) => {
  const step = await begin(signed);
  if (step.status) return 'begin ' + step.status;
  return send({ceremony: step.ceremony, answer: await sign(step), ...sent});
};`

func (h *house) granted() int {
	return strings.Count(h.run("audit", "tail", "--json", "-n", "500"), `"action":"approval.granted"`)
}

func (b *browser) addKey(h *house, name string) {
	b.t.Helper()
	b.open(base(h) + "passkeys")
	b.run(`document.querySelector('input[name=name]').value = ` + quoted(name) + `; document.querySelector('form[data-passkey=add] button').click()`)
	within(b.t, 20*time.Second, "the key "+name, func() bool { return strings.Contains(b.words(), "Registered: "+name) })
}

// TestAPasskeyApprovesExactlyWhatWasShown: under presence: passkey a call is approved only by
// an authenticator's answer for this call, as it was shown, and the answer counts once.
func TestAPasskeyApprovesExactlyWhatWasShown(t *testing.T) {
	b, h := newBrowser(t), newVault(t)
	first := h.hold(1)
	b.authenticator(webauthn.AuthenticatorTransportInternal)
	b.signIn(h)
	b.open(base(h) + "decisions")
	b.run(`document.querySelector('form[data-passkey] button').click()`)
	within(t, 20*time.Second, "the reason", func() bool { return strings.Contains(b.words(), "no passkey is registered") })
	b.addKey(h, "laptop")
	if out := h.run("approvals", "passkeys"); !strings.Contains(out, "  laptop  added ") {
		t.Errorf("the command line shows %q", out)
	}
	b.open(base(h) + "decisions")
	b.run(`document.querySelector('form[data-passkey] button').click()`)
	if err := <-first.over; err != nil || h.granted() != 1 {
		t.Fatalf("the call was approved %d times, and ended with %v", h.granted(), err)
	}

	second, third := h.hold(2), h.hold(3)
	b.open(base(h) + "decisions")
	b.run(attempts)
	for what, script := range map[string]string{
		"no answer":            `send({n: 2, preview: preview(2)})`,
		"an invented answer":   `send({n: 2, preview: preview(2), ceremony: 'A', answer: '{}'})`,
		"another question":     `forge({n: 3, preview: preview(3)}, {n: 2, preview: preview(2)})`,
		"another preview":      `forge({n: 2, preview: preview(2)}, {n: 2, preview: preview(3)})`,
		"no preview":           `forge({n: 2, preview: preview(2)}, {n: 2, preview: ''})`,
		"for longer":           `forge({n: 2, preview: preview(2)}, {n: 2, preview: preview(2), for: 'always'})`,
		"a preview not shown":  `forge({n: 2, preview: preview(3)}, {n: 2, preview: preview(3)})`,
		"the removal of a key": `(async () => { const a = await fetch('/ui/passkeys/begin', {method: 'POST', body: new URLSearchParams({csrf: csrf(), what: 'remove', key: 'x'})}); const s = await a.json(); return send({n: 2, preview: preview(2), ceremony: s.ceremony, answer: await sign(s)}) })()`,
		"another challenge":    `(async () => { const s = await begin({n: 2, preview: preview(2)}); const o = {...s, options: {...s.options, challenge: 'AAAAAAAAAAAAAAAAAAAAAA'}}; return send({n: 2, preview: preview(2), ceremony: s.ceremony, answer: await sign(o)}) })()`,
		"an older ceremony":    `(async () => { const s = await begin({n: 2, preview: preview(2)}), u = await begin({n: 2, preview: preview(2)}); return send({n: 2, preview: preview(2), ceremony: u.ceremony, answer: await sign(s)}) })()`,
	} {
		if got := b.text(script); got == "done" || !second.waits() || h.granted() != 1 {
			t.Errorf("%s: %s, %d approvals", what, got, h.granted())
		}
	}

	// Another origin of this host can use the key, but its answers are refused.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<title>evil</title>")
	}))
	defer evil.Close()
	step := b.text(`begin({n: 2, preview: preview(2)}).then(JSON.stringify)`)
	b.open(strings.Replace(evil.URL, "127.0.0.1", "localhost", 1))
	b.run(attempts)
	answer := b.text(`sign(` + step + `)`)
	b.open(base(h) + "decisions")
	b.run(attempts)
	if got := b.text(`send({n: 2, preview: preview(2), ceremony: (` + step + `).ceremony, answer: ` + quoted(answer) + `})`); got != "403" || !second.waits() {
		t.Errorf("an answer made on a second origin: %s", got)
	}

	// A program of the same user cannot approve at its own terminal.
	for _, line := range []string{"approve 2", "approve 2 --for always"} {
		cmd := h.Command(strings.Fields(line)...)
		at := exec.Command("script", "-qec", "'"+cmd.Path+"' "+line, "/dev/null")
		at.Env, at.Dir = append(cmd.Env, "PATH=/nonexistent"), cmd.Dir
		out, err := at.CombinedOutput()
		if at.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), "needs a passkey") || !strings.Contains(string(out), "/ui/#") {
			t.Errorf("doorward %s: %v\n%s", line, err, out)
		}
	}

	// The answer counts once.
	b.run(`window.once = (async () => { const s = await begin({n: 2, preview: preview(2)}); const f = {ceremony: s.ceremony, answer: await sign(s)}; window.used = f; return send({n: 2, preview: preview(2), ...f}) })()`)
	if got := b.text(`once`); got != "done" {
		t.Fatalf("the right answer: %s", got)
	}
	if err := <-second.over; err != nil {
		t.Errorf("the second call ended with %v", err)
	}
	for _, sent := range []string{`{n: 2, preview: ''}`, `{n: 3, preview: preview(3)}`} {
		if got := b.text(`send({...` + sent + `, ...used})`); got == "done" {
			t.Errorf("an answer counts again for %s", sent)
		}
	}

	// A stolen cookie is refused even with a valid answer.
	cookie := b.cookies(h)
	form := url.Values{}
	for k, v := range value[map[string]string](b, `(async () => { const s = await begin({n: 3, preview: preview(3)}); return {csrf: csrf(), n: '3', preview: preview(3), decision: 'approve', for: 'once', ceremony: s.ceremony, answer: await sign(s)} })()`) {
		form.Set(k, v)
	}
	r, err := http.NewRequest(http.MethodPost, base(h)+"decisions/call", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie)
	r.Header.Set("Origin", strings.TrimSuffix(base(h), "/ui/"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := doortest.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized || !third.waits() || h.granted() != 2 {
		t.Errorf("a stolen cookie: %s, %d approvals", res.Status, h.granted())
	}
}

// cookies is the console's cookie, stolen by a server on another port of the host.
func (b *browser) cookies(h *house) string {
	b.t.Helper()
	evil := newEvil(b.t, base(h))
	b.open(evil.at("/ui/steal"))
	stolen := evil.cookie()
	b.open(base(h) + "decisions")
	b.run(attempts)
	if stolen == "" {
		b.t.Fatal("no cookie was stolen")
	}
	return stolen
}

// TestAKeyIsAddedAndRemovedWithAKey: the first key is registered without another key; every
// later addition or removal needs a registered key. All are recorded.
func TestAKeyIsAddedAndRemovedWithAKey(t *testing.T) {
	b, h := newBrowser(t), newVault(t)
	b.authenticator(webauthn.AuthenticatorTransportInternal)
	b.signIn(h)
	b.addKey(h, "one")
	b.authenticator(webauthn.AuthenticatorTransportUsb)
	b.addKey(h, "two")
	var keys []struct{ ID, Name string }
	if err := json.Unmarshal([]byte(h.run("approvals", "passkeys", "--json")), &keys); err != nil || len(keys) != 2 {
		t.Fatalf("%v, %v", keys, err)
	}
	b.run(attempts)
	for what, script := range map[string]string{
		"removing without a key": `fetch('/ui/passkeys/remove', {method: 'POST', redirect: 'manual', body: new URLSearchParams({csrf: csrf(), key: ` + quoted(keys[0].ID) + `})}).then(a => a.type + a.status)`,
		"allowing without a key": `fetch('/ui/passkeys/allow', {method: 'POST', body: new URLSearchParams({csrf: csrf(), name: 'three', ceremony: 'x', answer: '{}'})}).then(a => a.type + a.status)`,
	} {
		if got := b.text(script); got != "basic403" {
			t.Errorf("%s: %s", what, got)
		}
	}
	b.open(base(h) + "passkeys")
	b.run(`document.querySelector('form[data-passkey=remove] button').click()`)
	within(t, 20*time.Second, "the key is gone", func() bool { return strings.Contains(b.words(), "Removed: "+keys[0].ID) })
	record := h.run("audit", "tail", "--json", "-n", "500")
	for _, want := range []string{`"action":"passkey.added","resource":"` + keys[0].ID, `"action":"passkey.added","resource":"` + keys[1].ID, `"action":"passkey.removed","resource":"` + keys[0].ID, "the first one", "allowed by "} {
		if !strings.Contains(record, want) {
			t.Errorf("the record lacks %s", want)
		}
	}
}

// agent runs one agent's session: it calls tools of the server agent, each by its name and
// its arguments in JSON, ends, and returns the answers.
func (h *house) agent(calls ...string) (answers string) {
	h.t.Helper()
	a, err := talkTo(h.shim())
	if err != nil {
		h.t.Fatal(err)
	}
	defer a.end()
	for _, c := range calls {
		name, args, _ := strings.Cut(c, " ")
		out, err := a.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
		if err != nil {
			h.t.Fatal(err)
		}
		answers += out + "\n"
	}
	return answers
}

// TestAPasskeyLetsAHeldMessageIn: under presence: passkey a held message is approved, like a
// held call, only by a key that signs what the page showed. A denial needs no key.
func TestAPasskeyLetsAHeldMessageIn(t *testing.T) {
	b, h := newBrowser(t), newVault(t)
	h.agent(`register {"name":"tester","inbound":"hold"}`)
	if out := h.agent(`register {"name":"planner"}`, `send {"to":"tester","body":"text-canary"}`, `send {"to":"tester","body":"second-canary"}`); strings.Count(out, `"state":"held"`) != 2 {
		t.Fatalf("not held: %s", out)
	}
	b.authenticator(webauthn.AuthenticatorTransportInternal)
	b.signIn(h)
	b.addKey(h, "laptop")
	b.open(base(h) + "decisions")
	if words := b.words(); !strings.Contains(words, "Approve message 1") || !strings.Contains(words, "Deny message 2") || !strings.Contains(words, "1: agent / agent.deliver message") || strings.Contains(words, "canary") {
		t.Errorf("the page shows %s", words)
	}
	held := func() int { return strings.Count(h.run("pending"), "agent.deliver message") }
	b.run(attempts)
	for what, script := range map[string]string{
		"no answer":         `send({n: 1, preview: preview(1)})`,
		"another message":   `forge({n: 2, preview: preview(2)}, {n: 1, preview: preview(1)})`,
		"another preview":   `forge({n: 1, preview: preview(1)}, {n: 1, preview: preview(2)})`,
		"for longer":        `forge({n: 1, preview: preview(1)}, {n: 1, preview: preview(1), for: 'always'})`,
		"signed for longer": `forge({n: 1, preview: preview(1), for: 'always'}, {n: 1, preview: preview(1), for: 'always'})`,
		"the form of messages": `(async () => { const id = JSON.parse(document.querySelector('pre').innerText).message_id;
			const a = await fetch('/ui/decisions/message', {method: 'POST', redirect: 'manual', body: new URLSearchParams({csrf: csrf(), do: 'approve', message: id})}); return a.type === 'opaqueredirect' ? 'done' : String(a.status) })()`,
	} {
		if got := b.text(script); got == "done" || held() != 2 {
			t.Errorf("%s: %s, %d held", what, got, held())
		}
	}
	b.open(base(h) + "decisions")
	b.run(`document.querySelector('form[data-passkey] button').click()`)
	within(t, 20*time.Second, "the approval", func() bool { return strings.Contains(b.words(), "1: approve.") })
	b.run(`[...document.querySelectorAll('button')].find(x => x.innerText === 'Deny message 2').click()`)
	within(t, 20*time.Second, "the denial", func() bool { return strings.Contains(b.words(), "2: deny.") })
	if out := h.agent(`register {"name":"tester"}`, `inbox {"format":"json"}`); held() != 0 || !strings.Contains(out, "text-canary") || strings.Contains(out, "second-canary") {
		t.Errorf("%d held; the recipient gets %s", held(), out)
	}
	record := h.run("audit", "tail", "--json", "-n", "500")
	if !regexp.MustCompile(`"resource":"/?agent/hold/approve","decision":"allow".*"preview":"[0-9a-f]{64}","passkey":"[0-9a-f]{12}"`).MatchString(record) || strings.Contains(record, "canary") {
		t.Errorf("the record of the approval:\n%s", record)
	}
	h.run("audit", "verify")
}
