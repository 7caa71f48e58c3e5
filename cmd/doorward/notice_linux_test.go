package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/desktop"
	"github.com/doorward/doorward/test/doortest"
)

// Notices of a call that the running program holds: what reaches a program, a webhook and
// the desktop of a person.

// hookSecret signs the webhooks of these tests.
const hookSecret = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// told is one webhook as it came.
type told struct {
	header http.Header
	body   []byte
}

// hookReceiver takes webhooks.
func hookReceiver(t *testing.T) (url string, got <-chan told) {
	t.Helper()
	all := make(chan told, 16)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			all <- told{r.Header, body}
		}
	}))
	t.Cleanup(web.Close)
	return web.URL, all
}

// verifies checks the signature as Standard Webhooks demands of a receiver.
func (m told) verifies() bool {
	key, err := base64.StdEncoding.DecodeString(hookSecret)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", m.header.Get("webhook-id"), m.header.Get("webhook-timestamp"), m.body)
	return err == nil && m.header.Get("webhook-signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// within returns the next value of a channel, and fails when none comes in time.
func within[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(mailSoon):
		t.Fatalf("not told by %s", what)
	}
	return v
}

// noticing starts the program with this configuration of notices and more variables, and
// holds one call with an argument that no notice may contain.
func noticing(t *testing.T, notify string, env ...string) (d *doortest.Daemon, call <-chan answer) {
	t.Helper()
	bin, err := exec.LookPath("doorward")
	if err != nil {
		t.Fatal(err)
	}
	d = doortest.Start(t, "approvals: {wait: 10m, notify: {"+notify+"}}\nmcpServers:\n  echo: {command: fakemcp, doorward: {tools: {ask: [count]}}}\n",
		doortest.Options{Bin: bin, Env: append(env, "GORACE=atexit_sleep_ms=0")})
	return d, hold(t, &mailDaemon{dir: d.Dir, env: d.Env()}, "text=argument-canary")
}

// approved approves the held call, which then runs once.
func approved(t *testing.T, d *doortest.Daemon, call <-chan answer) {
	t.Helper()
	cmd := exec.Command("pty", "doorward", "approve", "1")
	cmd.Env = d.Env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("approve: %v\n%s", err, out)
	}
	if a := ended(t, call); a.err != nil || !strings.Contains(a.out, "call 1") {
		t.Errorf("the call: %v\n%s", a.err, a.out)
	}
	record, err := exec.Command("sh", "-c", "cat "+filepath.Join(d.State, "audit", "*.jsonl")).Output()
	if err != nil || !bytes.Contains(record, []byte("approval.granted")) || bytes.Contains(record, []byte("argument-canary")) || strings.Contains(strings.Join(d.Stderr(), "\n"), "argument-canary") {
		t.Errorf("the record or the log has the argument, or no approval (%v)", err)
	}
}

// TestAHeldCallIsToldToWebhookAndDesktop: the running program reports a held call by a
// webhook, with a signature that verifies, and on a real bus. The arguments are in neither,
// unless the configuration sends them by webhook.
func TestAHeldCallIsToldToWebhookAndDesktop(t *testing.T) {
	t.Parallel()
	for _, args := range []bool{false, true} {
		t.Run(fmt.Sprintf("arguments %v", args), func(t *testing.T) {
			t.Parallel()
			bus := desktop.Bus(t)
			shown := desktop.Notifications(t, bus, "body", "body-markup")
			url, hooks := hookReceiver(t)
			d, call := noticing(t, fmt.Sprintf("webhook: %s/path-secret, webhook_secret: whsec_%s, allow_private: true, webhook_arguments: %v", url, hookSecret, args), "DBUS_SESSION_BUS_ADDRESS="+bus)
			hook := within(t, hooks, "webhook")
			var body struct {
				Type string
				Data struct {
					N            int
					Server, Tool string
					Arguments    json.RawMessage
				}
			}
			if err := json.Unmarshal(hook.body, &body); err != nil || body.Type != "approval.asked" || body.Data.N != 1 || body.Data.Server != "echo" || body.Data.Tool != "count" {
				t.Errorf("%v: %s", err, hook.body)
			}
			if !hook.verifies() {
				t.Errorf("the signature does not verify: %v", hook.header)
			}
			if has := bytes.Contains(hook.body, []byte("argument-canary")); has != args || has != (string(body.Data.Arguments) == `{"text":"argument-canary"}`) {
				t.Errorf("the webhook: %s", hook.body)
			}
			notice := within(t, shown, "the desktop")
			if notice.Summary != "Doorward holds call 1" || !strings.HasPrefix(notice.Body, "echo/count for ") || strings.Contains(notice.Body, "canary") || len(notice.Actions) != 0 {
				t.Errorf("the desktop: %+v", notice)
			}
			approved(t, d, call)
			if len(hooks) != 0 || len(shown) != 0 {
				t.Errorf("told again: %d webhooks, %d notices", len(hooks), len(shown))
			}
			if said := strings.Join(d.Stderr(), "\n"); strings.Contains(said, "path-secret") || strings.Contains(said, hookSecret) {
				t.Errorf("the log has the address or the secret:\n%s", said)
			}
		})
	}
}

// canaries are variables of a daemon, each with a value that no program may get: known
// ones, ones that differ a little from those that are passed on, and ones at random.
func canaries(r *rand.Rand) []string {
	names := []string{"AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "OTLP_TOKEN", "DOORWARD_TOKEN", "DOORWARD_SESSION", "TMPDIR_", "PATHS",
		"HOMEDIR", "DISPLAYS", "LC_ALL", "XDG_CONFIG_HOME", "DBUS_SYSTEM_BUS_ADDRESS", "path", "DOORWARD_PENDINGS", "DOORWARD_SERVER_KEY"}
	for range 40 {
		name := make([]byte, 1+r.IntN(20))
		for i := range name {
			name[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefg"[r.IntN(34)]
		}
		names = append(names, "X"+string(name))
	}
	for i, n := range names {
		names[i] = n + "=variable-canary-0123456789"
	}
	return names
}

// TestTheCommandOfANoticeGetsAFixedEnvironment: the program of a notice gets the variables
// that find programs and the desktop, and those about the call. It gets no other variable
// of the daemon, and no argument of the call.
func TestTheCommandOfANoticeGetsAFixedEnvironment(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	dir := t.TempDir()
	file := filepath.Join(dir, "told")
	want := map[string]string{"USER": "me", "DISPLAY": ":7", "WAYLAND_DISPLAY": "wayland-7", "XAUTHORITY": dir + "/authority", "XDG_RUNTIME_DIR": dir,
		"DBUS_SESSION_BUS_ADDRESS": "unix:path=" + dir + "/bus"}
	env := canaries(rand.New(rand.NewPCG(seed, 1)))
	for name, v := range want {
		env = append(env, name+"="+v)
	}
	d, call := noticing(t, "command: [cp, /proc/self/environ, "+file+"], desktop: \"off\"", env...)
	var b []byte
	if !poll(mailSoon, func() bool { b, _ = os.ReadFile(file); return bytes.Contains(b, []byte("DOORWARD_TOOL=")) }) {
		t.Fatalf("seed %d: the program was not started: %q", seed, b)
	}
	if bytes.Contains(b, []byte("canary")) {
		t.Errorf("seed %d: the program got %q", seed, b)
	}
	maps.Copy(want, map[string]string{"HOME": d.Dir, "PATH": os.Getenv("PATH"), "LANG": "C.UTF-8", "DOORWARD_PENDING": "1", "DOORWARD_SERVER": "echo", "DOORWARD_TOOL": "count"})
	got := make(map[string]string)
	for pair := range strings.SplitSeq(strings.TrimSuffix(string(b), "\x00"), "\x00") {
		name, v, _ := strings.Cut(pair, "=")
		got[name] = v
	}
	if got["DOORWARD_CLIENT"] == "" {
		t.Errorf("the client has no name: %q", b)
	}
	delete(got, "DOORWARD_CLIENT")
	if !maps.Equal(got, want) {
		t.Errorf("seed %d: the program got %v, want %v", seed, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	approved(t, d, call)
}

// TestAHeldMessageIsToldToEveryWay: a held message is reported once by the program, the
// webhook and the desktop. Its text is in none of them, although the webhook has the
// arguments. A message that was held before the start of the daemon is not reported again.
func TestAHeldMessageIsToldToEveryWay(t *testing.T) {
	t.Parallel()
	bus := desktop.Bus(t)
	shown := desktop.Notifications(t, bus, "body")
	url, hooks := hookReceiver(t)
	file := filepath.Join(t.TempDir(), "told")
	config := fmt.Sprintf("listen: {http: []}\napprovals: {notify: {command: [sh, -c, 'env >>%s'], webhook: %s, allow_private: true, webhook_arguments: true}}\n", file, url)
	d := startMail(t, "told", "listen: {http: []}\n")
	c := d.client(d.proxy("one")).mustOpen()
	c.must("register", obj{"name": "tester", "inbound": "hold"})
	s := d.client(d.proxy("two")).mustOpen()
	s.register("planner")
	s.send("tester", "before-canary")
	if out, status := d.human("doorward", "pending"); status != 0 || !strings.Contains(out, "tester") {
		t.Fatalf("status %d: %s", status, out) // the message has number 1 now
	}
	d.stop()
	d.write("doorward.yaml", config)
	d.env = append(d.env, "DBUS_SESSION_BUS_ADDRESS="+bus)
	d.start()
	s = d.client(d.proxy("three")).mustOpen()
	s.register("other")
	s.send("tester", "text-canary")
	hook := within(t, hooks, "webhook")
	if !bytes.Contains(hook.body, []byte(`"n":3,"client":"other@default"`)) || !bytes.Contains(hook.body, []byte(`"action":"agent.deliver"`)) || !bytes.Contains(hook.body, []byte(`"address":"tester"`)) {
		t.Errorf("the webhook: %s", hook.body)
	}
	notice := within(t, shown, "the desktop")
	if notice.Summary != "Doorward holds message 3" || !strings.HasPrefix(notice.Body, "agent/message for other@default, until ") {
		t.Errorf("the desktop: %+v", notice)
	}
	var b []byte
	if !poll(mailSoon, func() bool { b, _ = os.ReadFile(file); return bytes.Contains(b, []byte("DOORWARD_TOOL=message\n")) }) {
		t.Errorf("the program got %s", b)
	}
	if out, status := d.human("doorward", "agent", "hold", "ls"); status != 0 || strings.Count(out, "held") != 2 {
		t.Errorf("status %d: %s", status, out)
	}
	if len(hooks) != 0 || len(shown) != 0 || bytes.Count(b, []byte("DOORWARD_PENDING=")) != 1 || bytes.Contains(append(append(b, hook.body...), notice.Body...), []byte("canary")) {
		t.Errorf("told more than one message, or of its text: %d webhooks, %d notices, %s", len(hooks), len(shown), b)
	}
}
