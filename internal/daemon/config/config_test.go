package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
)

// good parses what must have no problem at all.
func good(t *testing.T, name, content string) *config.Config {
	t.Helper()
	c, ps := parse(name, content)
	for _, p := range ps {
		t.Errorf("problem: %s", p)
	}
	if c == nil {
		t.FailNow()
	}
	return c
}

// manual is the example that the documentation of the configuration begins with.
func manual(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/manual.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// defaults is the configuration of an empty file in /etc/doorward, written out.
func defaults() *config.Config {
	return &config.Config{
		Listen: config.Listen{
			Unix: "auto",
			HTTP: []config.Listener{{Addr: "127.0.0.1:7866", Auth: "auto"}},
		},
		Servers: map[string]*config.Server{},
		OAuth:   config.OAuth{Algorithms: []string{"RS256", "PS256", "ES256", "EdDSA"}},
		Agent: config.Agent{Enabled: true, Overflow: "reject", MessageBytes: 65536, MailboxMessages: 1000, MailboxBytes: 8 << 20,
			SenderMessages: 100, SendsPerMinute: 60, Peers: 256, TTL: 24 * time.Hour, Hold: time.Hour, Lease: 2 * time.Minute,
			Retries: 5, WaitCap: 55 * time.Second, Session: 90 * time.Second, Keep: config.Keep{Confirmed: 168 * time.Hour}, SiblingJoin: "off"},
		Instructions: config.Instructions{Dir: "/etc/doorward/instructions", Canary: "alert", OAuth: config.SignIn{Grant: "authorization_code"}},
		Audit:        config.Audit{Sync: "interval", Retain: config.Retain{Days: 90}},
		Approvals:    config.Approvals{Wait: "auto", Expire: time.Hour, Presence: "terminal", Notify: config.ApprovalsNotify{Desktop: "auto"}},
		Limits:       config.Limits{BodyBytes: 4194304, AnswerBytes: 16777216, Sessions: 1000, SessionsPerPrincipal: 64, Children: 256, CallsPerPrincipal: 256, CallsPerSecond: 200},
		Log:          config.Log{Level: "info", Format: "text"},
		Dir:          "/etc/doorward",
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty":             "",
		"comments":          "# nothing\n\n",
		"null":              "null\n",
		"no keys":           "{}",
		"a document start":  "---\n",
		"empty sections":    "listen:\nagent:\nmcpServers:\nlog:\noauth:\n",
		"a schema":          `{"$schema": ""}`,
		"a byte order mark": "\ufeff# x\n",
	} {
		if diff := cmp.Diff(defaults(), good(t, "doorward.yaml", content)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestServerDefaults(t *testing.T) {
	t.Parallel()
	c := good(t, "doorward.yaml", "mcpServers:\n  a: {command: npx}\n  b:\n    url: https://mcp.example.com/mcp\n    doorward:\n")
	handling := config.Handling{
		Tools: config.Tools{Allow: []string{"*"}}, Ask: config.Ask{Allow: []string{"elicitation"}},
		Instances: "auto", Start: "auto", Sandbox: "contain", Network: "inherit",
		Limits: config.ServerLimits{Memory: 2 << 30, Processes: 512, Files: 4096}, MaxInstances: 16, MaxConcurrency: 64, Timeout: 120 * time.Second,
		Connect: 10 * time.Second, Idle: 15 * time.Minute, MaxStreams: 1024, OAuth: config.SignIn{Grant: "authorization_code"},
		Protocol: "auto", Trust: "auto", Scan: "off",
	}
	want := map[string]*config.Server{
		"a": {Kind: "stdio", Command: "npx", Name: "a", Line: 2, Path: "/usr/bin/npx", Display: "npx", Doorward: handling},
		"b": {Kind: "http", URL: secret.New("https://mcp.example.com/mcp"), Name: "b", Line: 3, Display: "https://mcp.example.com/mcp", Doorward: handling},
	}
	if diff := cmp.Diff(want, c.Servers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each key of the example in the documentation is read into its field.
func TestManualExample(t *testing.T) {
	t.Parallel()
	c := good(t, "doorward.yaml", manual(t))
	want := defaults()
	want.Listen.HTTP[0].TLS = &config.TLS{Cert: "/etc/doorward/F", Key: "/etc/doorward/F"}
	want.Listen.HTTP[0].Hosts, want.Listen.HTTP[0].Origins, want.Listen.HTTP[0].Proxies = []string{}, []string{}, []string{}
	want.Policy = "/etc/doorward/policy.cedar"
	want.OAuth.Scopes = map[string][]string{}
	want.Limits.Written = map[string]bool{"body_bytes": true, "answer_bytes": true, "calls_per_second": true, "children": true, "sessions": true, "sessions_per_principal": true}
	handling := config.Handling{
		Tools: config.Tools{Allow: []string{"*"}, Deny: []string{}}, Ask: config.Ask{Allow: []string{"elicitation"}},
		Instances: "auto", Start: "auto", Sandbox: "contain", Network: "inherit",
		Limits: config.ServerLimits{Memory: 2 << 30, Processes: 512, Files: 4096}, MaxInstances: 16, MaxConcurrency: 64, Timeout: 120 * time.Second,
		Connect: 10 * time.Second, Idle: 15 * time.Minute, MaxStreams: 1024, OAuth: config.SignIn{Grant: "authorization_code"},
		Protocol: "auto", Trust: "auto", Scan: "off",
	}
	remote := handling
	remote.Tools.Deny = nil
	handling.CountsOwn = true
	want.Servers = map[string]*config.Server{
		"everything": {
			Kind: "stdio", Command: "npx", Args: []secret.Value{secret.New("-y"), secret.New("@modelcontextprotocol/server-everything")},
			Env: map[string]secret.Value{"API_KEY": secret.New(password)}, Cwd: "/some/where", Doorward: handling,
			Name: "everything", Line: c.Servers["everything"].Line, Path: "/usr/bin/npx", Display: "npx -y @modelcontextprotocol/server-everything",
			Written: []secret.Value{secret.New("-y"), secret.New("@modelcontextprotocol/server-everything")},
		},
		"docs": {
			Kind: "http", URL: secret.New("https://mcp.example.com/mcp"), Doorward: remote,
			Headers: map[string]secret.Value{"Authorization": secret.New("Bearer " + password)},
			Name:    "docs", Line: c.Servers["docs"].Line, Display: "https://mcp.example.com/mcp",
		},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The same content gives the same configuration in block style, flow style and JSON.
func TestJSONIsTheSame(t *testing.T) {
	t.Parallel()
	block := "log: {level: debug}\nmcpServers:\n  a:\n    command: npx\n    args: [\"\U0001F600\", a/b, \"off\"]\n    disabled: false\n    doorward: {timeout: 5m, max_instances: 2}\nlisten: {http: []}\n"
	compact := `{"log":{"level":"debug"},"mcpServers":{"a":{"command":"npx","args":["\ud83d\ude00","a\/b","off"],"disabled":false,"doorward":{"timeout":"5m","max_instances":2}}},"listen":{"http":[]}}`
	want := good(t, "doorward.yaml", block)
	want.Servers["a"].Line = 1
	for name, content := range map[string]string{"doorward.json": compact, "doorward.yaml": compact, "flow.yaml": strings.ReplaceAll(compact, `"a\/b","off"]`, `"a/b",off, ]`)} {
		content = strings.ReplaceAll(content, `\ud83d\ude00`, map[bool]string{true: "\U0001F600", false: `\ud83d\ude00`}[name == "flow.yaml"])
		if diff := cmp.Diff(want, good(t, name, content)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// No printed form of a configuration has a text that came from a reference, env, headers, a query or a connection
// string.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	c := good(t, "doorward.yaml", `
store: {postgres: "postgres://u:${env:API_KEY}@db/x"}
mcpServers:
  a: {command: npx, args: ["${LITERAL:-hunter2-correct-horse}"], env: {A: "${env:API_KEY}", B: hunter2-correct-horse, C: "${file:/run/secrets/key}"}}
  b: {url: "https://mcp.example.com/mcp?q=hunter2-correct-horse", headers: {Authorization: "Bearer ${DOCS_TOKEN}"}}
  c: {url: "https://mcp.example.com/${LITERAL:-x}/mcp#hunter2-correct-horse"}
`)
	if c.Servers["a"].Env["A"].Reveal() != password || c.Servers["b"].Headers["Authorization"].Reveal() != "Bearer "+password {
		t.Fatal("the secrets are not there")
	}
	c.Servers["a"].Display = "" // shows the arguments as the file has them, which is tested below
	things := []any{c, *c, c.Store, c.Servers}
	for _, s := range c.Servers {
		things = append(things, s, *s, s.Env, s.Headers, s.Args, s.URL)
	}
	var out bytes.Buffer
	for _, thing := range things {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%p"} {
			fmt.Fprintf(&out, verb, thing)
		}
		b, err := json.Marshal(thing)
		if err != nil {
			t.Errorf("json of %T: %v", thing, err)
		}
		out.Write(b)
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "thing", thing)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "thing", thing)
	}
	for _, form := range []string{password, fmt.Sprintf("%x", password)} {
		if strings.Contains(out.String(), form) {
			t.Errorf("printed as %q", form)
		}
	}
}

func TestDisplayIsTheFileAndNotTheValues(t *testing.T) {
	t.Parallel()
	c, _ := parse("doorward.yaml", `
mcpServers:
  a: {command: "${HOME}/bin/x", args: ["--key=${API_KEY}", "two words", "", "a\nb"]}
  b: {url: "https://${HOST}/mcp?key=${API_KEY}#x"}
  c: {url: "https://ada:hunter2-correct-horse@mcp.example.com/"}
`)
	for name, want := range map[string]string{
		"a": `${HOME}/bin/x --key=${API_KEY} "two words" "" "a\nb"`,
		"b": "https://${HOST}/mcp",
		"c": "",
	} {
		if got := c.Servers[name].Display; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// A server with a problem of its own is refused with the reason, and other servers are not affected.
func TestRefusedServers(t *testing.T) {
	t.Parallel()
	c, ps := parse("doorward.yaml", `
mcpServers:
  good: {command: npx}
  unset: {command: npx, env: {A: "${NOPE}"}}
  loopback: {url: "http://127.0.0.1:1/mcp"}
  missing: {command: missing}
  odd: {type: ws, url: "wss://mcp.example.com"}
  warned: {command: npx, timeout: 5}
  "off": {command: missing, env: {A: "${NOPE}"}, disabled: true}
`)
	if c == nil || config.OK(ps) || config.Fatal(ps) {
		t.Fatalf("problems: %v", ps)
	}
	want := map[string]string{
		"good": "", "warned": "", "off": "",
		"unset":    "env.A: environment variable NOPE is not set; set it where the daemon starts, or give a default with ${NOPE:-default}",
		"loopback": "url: the address is loopback; set allow_private to allow it",
		"missing":  "command: finding the command: no such program on PATH",
		"odd":      `type: "ws" is not one of stdio, http, sse, streamable-http, streamableHttp`,
	}
	for name, s := range c.Servers {
		if s.Refused != want[name] {
			t.Errorf("%s: refused %q, want %q", name, s.Refused, want[name])
		}
		if usable := want[name] == "" && name != "off"; s.Usable() != usable {
			t.Errorf("%s: usable %v", name, s.Usable())
		}
	}
	if got := slices.Sorted(maps.Keys(c.Servers)); len(got) != len(want) {
		t.Errorf("servers: %v", got)
	}
}

// Nothing is looked up, read or resolved for a server that is disabled.
func TestDisabledServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	o := config.Options{
		Env:            func(name string) (string, bool) { t.Errorf("looked up %s", name); return "", false },
		File:           func(path string) (secret.Value, error) { t.Errorf("read %s", path); return secret.Value{}, nil },
		CheckURL:       func(string, bool) error { t.Error("judged the address"); return nil },
		ResolveCommand: func(c, _ string) (string, error) { t.Errorf("resolved %s", c); return c, nil },
	}
	content := `{"mcpServers": {"a": {"command": "x", "args": ["${A}"], "env": {"A": "${file:/etc/shadow}"}, "disabled": true}, "b": {"disabled": true, "url": "https://${B}/"}}}`
	c, ps := config.Parse("x.json", "/", []byte(content), o)
	if len(ps) != 0 || c == nil || len(c.Servers) != 2 {
		t.Errorf("problems: %v", ps)
	}
}

// Relative paths begin at the file, and a bare command is found on the PATH that the child will have.
func TestPaths(t *testing.T) {
	t.Parallel()
	c := good(t, "doorward.yaml", `
listen: {unix: run/x.sock, http: [{addr: "127.0.0.1:1", tls: {cert: ../tls/cert.pem, key: "${HOME}/key.pem"}}]}
policy: policy.cedar
audit: {dir: audit}
instructions: {dir: /srv/instructions}
mcpServers:
  a: {command: ../bin/notes, cwd: work}
  b: {command: ./notes}
  c: {command: /opt/notes}
  d: {command: "${HOME}/notes", cwd: "${HOME}"}
  e: {command: notes, env: {PATH: "/opt/bin:/bin"}}
  f: {command: notes}
`)
	got := []string{c.Listen.Unix, c.Listen.HTTP[0].TLS.Cert, c.Listen.HTTP[0].TLS.Key, c.Policy, c.Audit.Dir, c.Instructions.Dir}
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		got = append(got, c.Servers[name].Path, c.Servers[name].Cwd)
	}
	want := []string{
		"/etc/doorward/run/x.sock", "/etc/tls/cert.pem", "/home/ada/key.pem", "/etc/doorward/policy.cedar",
		"/etc/doorward/audit", "/srv/instructions",
		"/etc/bin/notes", "/etc/doorward/work", "/etc/doorward/notes", "", "/opt/notes", "",
		"/home/ada/notes", "/home/ada", "/opt/bin/notes", "", "/usr/bin/notes", "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProblemAsJSON(t *testing.T) {
	t.Parallel()
	_, ps := parse("doorward.yaml", "log: {level: x}\nmcpServers: {a: {command: missing, timeout: 1}}\n")
	b, err := json.Marshal(ps)
	want := `[{"file":"doorward.yaml","line":1,"key":"log.level","problem":"\"x\" is not one of debug, info, warn, error","severity":"error"},` +
		`{"file":"doorward.yaml","line":2,"key":"mcpServers.a.command","problem":"finding the command: no such program on PATH","server":"a","severity":"error"},` +
		`{"file":"doorward.yaml","line":2,"key":"mcpServers.a.timeout","problem":"ignored: belongs to a client; Doorward's own is doorward.timeout","server":"a","warning":true,"severity":"warning"}]`
	if err != nil || string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

// Every key has a sentence for the manual, and every whole number has bounds and a default.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	var visit func(reflect.Type)
	seen := map[reflect.Type]bool{}
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || typ.PkgPath() != reflect.TypeFor[config.Config]().PkgPath() {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			key, ok := f.Tag.Lookup("yaml")
			switch {
			case !ok:
				t.Errorf("%s.%s has no key", typ, f.Name)
			case key == "-":
				continue
			case !strings.HasSuffix(f.Tag.Get("doc"), "."):
				t.Errorf("%s.%s has no sentence for the manual", typ, f.Name)
			case f.Type.Kind() == reflect.Int && (f.Tag.Get("min") == "" || f.Tag.Get("max") == "" || f.Tag.Get("default") == ""):
				t.Errorf("%s.%s has no bounds or no default", typ, f.Name)
			}
			visit(f.Type)
		}
	}
	visit(reflect.TypeFor[config.Config]())
	if len(seen) < 15 {
		t.Errorf("only %d sections were visited", len(seen))
	}
}

func TestLoadWithoutAFile(t *testing.T) {
	t.Parallel()
	o := options()
	c, ps := config.Load("", o)
	want := defaults()
	want.Dir = "/home/ada/.config/doorward"
	want.Instructions.Dir = filepath.Join(want.Dir, "instructions")
	if diff := cmp.Diff(want, c); diff != "" || len(ps) != 0 {
		t.Errorf("%v (-want +got):\n%s", ps, diff)
	}
}
