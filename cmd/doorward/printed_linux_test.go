package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/trust/visible"
	"github.com/doorward/doorward/test/doortest"
)

// unseen is a text with a character of each kind that a terminal acts on or
// that a person does not see.
const unseen = "a\x1b[2J\x1b]0;t\x07\u009b31m\u0085\x08\r\x7f\u202e\u2066\u200b\u200c\u200d\u2028\u2060\ufeff\u00ad\u115f\u3164\u180b\ufe00\ufe0f\U000E0041\U000E0101z"

// hides is an MCP server that writes unseen into every text that it chooses.
func (f *fake) hides(r fakeRequest) bool {
	t := quote(unseen)
	key := quote("k\u3164\u200b\u202e\ufe01\U000E0041") // controls in keys are refused with the whole message
	object := `{"type":"object","title":` + t + `,"properties":{"a":{"description":` + t + `}}}`
	tool := func(name string) string {
		return `{"name":` + quote(name) + `,"title":` + t + `,"description":` + t + `,"inputSchema":` + object + `}`
	}
	switch r.Method {
	case "initialize":
		f.result(r, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":`+t+`,"title":`+t+`,"version":`+t+`},"instructions":`+t+`}`)
	case "tools/list":
		hiddenKey := `{"name":"key","inputSchema":{"type":"object","properties":{` + t + `:{}}}}`
		f.result(r, `{"tools":[`+tool("text")+`,`+tool("fails")+`,`+tool("error")+`,`+tool("link")+`,`+tool("structured")+`,`+tool("na\u200bme")+`,`+tool(unseen)+`,`+tool("\u3164")+`,`+hiddenKey+`]}`)
	case "prompts/list":
		f.result(r, `{"prompts":[{"name":`+t+`,"description":`+t+`,"arguments":[{"name":`+t+`}]}]}`)
	case "resources/list":
		f.result(r, `{"resources":[{"uri":`+quote("file:///"+unseen)+`,"name":`+t+`}]}`)
	case "tools/call":
		var p struct{ Name string }
		_ = json.Unmarshal(r.Params, &p) // on an error the name is empty
		switch p.Name {
		case "fails":
			f.result(r, `{"isError":true,"content":[{"type":"text","text":`+t+`}]}`)
		case "error":
			f.fail(r, -32050, unseen, `{"why":`+t+`,`+t+`:1}`)
		case "link":
			f.result(r, `{"content":[{"type":"resource_link","uri":`+quote("file:///"+unseen)+`,"name":`+t+`},{"type":`+t+`}]}`)
		case "structured":
			f.result(r, `{"content":[{"type":"text","text":`+t+`,"annotations":{`+key+`:1}}],"structuredContent":{`+key+`:`+t+`},"_meta":{`+key+`:`+t+`}}`)
		default:
			f.result(r, `{"content":[{"type":"text","text":`+t+`}]}`)
		}
	default:
		return false
	}
	return true
}

// everyCommand are the commands of the program, each with arguments that make
// it print what servers, agents, clients and files chose. $NAME is replaced.
func everyCommand() map[string][][]string {
	bad := unseen
	return map[string][][]string{
		"tools":   {{}, {"hides"}, {bad}},
		"call":    {{"hides", "text"}, {"hides", "fails"}, {"hides", "error"}, {"hides", "link"}, {"hides", "structured"}, {"hides", "name"}, {"hides", bad}, {bad, bad}, {"hides", "text", bad}, {"hides", "text", bad + "=" + bad}},
		"status":  {{}, {"--wait", bad}},
		"pending": {{}}, "approve": {{"1"}, {bad}, {"1", "--for", bad}}, "deny": {{"1"}, {"1", "--why", bad}, {bad}},
		"approvals":  {{"list"}, {"revoke", bad}},
		"check":      {{}, {"--config", "bad.yaml"}, {"--config", bad}, {bad}},
		"allow":      {{}, {"--revoke"}, {bad}},
		"schema":     {{}},
		"completion": {{"bash"}, {"zsh"}, {"fish"}, {"powershell"}, {bad}},

		"import":    {{}, {"--yes"}, {"bad.yaml"}, {bad}, {"--secrets", bad}},
		"install":   {{"cursor"}, {"cursor", "--yes"}, {bad}, {"zed", "--project", bad}},
		"uninstall": {{"cursor"}, {"cursor", "--yes"}, {bad}},

		"doctor":  {{}, {"--config", "bad.yaml"}, {bad}},
		"log":     {{}, {"--since", "1h"}, {"--since", bad}, {"--server", bad}, {"--denied"}, {bad}},
		"ui":      {{"--print"}, {"--sign-out"}, {bad}},
		"restart": {{bad}, {"hides"}},
		"version": {{}},
		"man":     {{}, {"call"}, {bad}},
		"whoami":  {{}},
		"explain": {{"--as", "uid:1", "tools/call", "hides/" + bad}, {"--as", bad, "x", "y"}, {"--as", "uid:1", bad, bad}, {"--as", "uid:1", "tools/call", "hides/text", "--args", bad}},
		"policy":  {{}},
		"login":   {{"--list"}, {bad}, {"hides"}},
		"logout":  {{bad}, {"hides"}},
		"trust":   {{}, {"hides"}, {"hides", "--yes"}, {bad}},
		"token":   {{"new", bad}, {"new", "t", "--scope", bad}, {"new", "ok"}, {"list"}, {"revoke", bad}, {bad}},
		"audit":   {{"tail", "-n", "1000"}, {"show", "1"}, {"show", "9"}, {"show", bad}, {"verify"}, {"export"}, {bad}},

		"agent peers":    {{}, {"show", "$PEER"}, {"show", "noisy"}, {bad}, {"retire", bad}},
		"agent send":     {{"noisy", bad}, {"noisy", "--subject", bad, bad}, {bad, bad}},
		"agent inbox":    {{}, {"noisy"}, {"noisy", "--bodies"}, {bad}},
		"agent tail":     {{"--peer", bad}},
		"agent trace":    {{"$MESSAGE"}, {bad}},
		"agent hold":     {{"ls"}, {"approve", bad}, {"pause", bad}, {bad}},
		"agent transfer": {{bad, "--to", bad}},
		"agent stop":     {{bad}, {"$PEER", bad}},
		"agent fsck":     {{}},
		"agent hook":     {{}, {bad}},

		"auth session-start": {{}, {"--project", bad}},
		"auth status":        {{}},
		"auth check":         {{}},
		"auth header":        {{}},
		"auth token":         {{"list"}, {"create", "--name", bad}, {"revoke", bad}},
		"auth session-end":   {{}},

		"instructions list":     {{}, {"voice"}, {bad}},
		"instructions show":     {{"voice"}, {bad}},
		"instructions diff":     {{"voice"}, {bad}},
		"instructions verify":   {{}, {"guidance"}, {"odd"}, {"odd/a.md"}, {bad}},
		"instructions promote":  {{bad}, {"voice", bad}},
		"instructions rollback": {{bad}, {"voice"}},
		"instructions revoke":   {{bad}},
		"instructions edit":     {{bad}},
		"instructions import":   {{"odd"}, {bad}},
		"instructions access":   {{}},
		"instructions canary":   {{bad}},

		"connect": {{bad, bad}, {"--namespace", bad}, {"--channel-payload", bad}},
		"serve":   {{bad}, {"--config", "bad.yaml"}, {"--config", bad}},
		bad:       {{}, {bad}},
	}
}

// TestEveryCommandIsPrinted: everyCommand has each command of the program.
func TestEveryCommandIsPrinted(t *testing.T) {
	t.Parallel()
	known := everyCommand()
	for _, c := range leaves(newRoot()) {
		path := strings.TrimPrefix(c.CommandPath(), "doorward ")
		parent := strings.TrimPrefix(c.Parent().CommandPath(), "doorward ")
		if known[path] == nil && known[parent] == nil {
			t.Errorf("%s is not run", path)
		}
	}
}

// cmdPrinted runs every command, as text and as JSON, and some also from a program with a
// hostile path. Whatever the exit status, the output contains no hidden character and moves
// no cursor. SECRET must not be in it.
func cmdPrinted(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) <= 1, "printed [SECRET]")
	secret := strings.Join(args, "")
	dir := ts.MkAbs("odd" + strings.NewReplacer("/", "", "\x00", "").Replace(unseen))
	ts.Check(os.MkdirAll(dir, 0o700))
	odd := filepath.Join(dir, "doorward")
	if _, err := os.Stat(odd); err != nil {
		real, err := filepath.EvalSymlinks(program(ts, "doorward"))
		ts.Check(err)
		b, err := os.ReadFile(real) // a link would change the program under the other scripts
		ts.Check(err)
		ts.Check(os.WriteFile(odd, b, 0o700))
	}
	escaped := 0
	all := everyCommand()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, given := range all[name] {
			argv := append(strings.Fields(strings.ReplaceAll(name, unseen, "UNSEEN")), given...)
			for i, a := range argv {
				argv[i] = os.Expand(strings.ReplaceAll(a, "UNSEEN", unseen), ts.Getenv)
				argv[i] = strings.ReplaceAll(argv[i], "\x00", "")
			}
			for _, argv := range [][]string{argv, append(argv[:len(argv):len(argv)], "--json")} {
				out, errs := printedBy(ts, odd, argv)
				escaped += strings.Count(out+errs, `\u001b`) + strings.Count(out+errs, `\x1b`)
				mustBeShown(ts, fmt.Sprintf("%q on stdout", argv), out, secret)
				mustBeShown(ts, fmt.Sprintf("%q on stderr", argv), errs, secret)
			}
		}
	}
	if secret == "" && escaped < 20 {
		ts.Fatalf("only %d escapes were printed: the hostile texts did not arrive", escaped)
	}
}

func printedBy(ts *testscript.TestScript, odd string, argv []string) (out, errs string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second+late())
	defer cancel()
	out, errs, _, err := run1(ctx, ts, []string{"EDITOR=true", "TERM=xterm"}, append([]string{"doorward"}, argv...))
	ts.Check(err)
	if argv[0] == "whoami" || argv[0] == "auth" { // these print what the daemon sees of the program
		more, mores, _, err := run1(ctx, ts, nil, append([]string{odd}, argv...))
		ts.Check(err)
		out, errs = out+more, errs+mores
	}
	if ctx.Err() != nil {
		ts.Fatalf("%q did not end", argv)
	}
	return out, errs
}

func mustBeShown(ts *testscript.TestScript, what, text, secret string) {
	if i := strings.IndexFunc(text, visible.Hidden); i >= 0 || plaintext.FirstHidden(text) >= 0 {
		ts.Fatalf("%s: a character that cannot be seen at %d of %+q", what, i, text)
	}
	if secret != "" && doortest.Repeats(text, secret) {
		ts.Fatalf("%s: the secret stands in %q", what, text)
	}
}

// cmdOddFiles writes a configuration, documents and file names that hold what
// cannot be seen.
func cmdOddFiles(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 0, "oddfiles")
	name := strings.ReplaceAll(unseen, "/", "")
	ts.Check(os.MkdirAll(ts.MkAbs("odd"), 0o700))
	for file, text := range map[string]string{
		"bad.yaml":                 "mcpServers:\n  " + quote(unseen) + ": {command: " + quote(unseen) + ", " + quote(unseen) + ": 1}\n" + quote(unseen) + ": 1\nlog: {level: " + quote(unseen) + "}\n",
		"odd/a.md":                 "---\nname: a\nclass: voice\n" + quote(unseen) + ": 1\n---\nx" + unseen + "\n",
		"odd/" + name + ".md":      "---\nname: " + quote(unseen) + "\nclass: " + quote(unseen) + "\n---\nx\n",
		"guidance/" + name + ".md": "---\nname: " + quote(unseen) + "\n---\nx" + unseen + "\n",
	} {
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}

// cmdShown checks a file as cmdPrinted checks the output.
func cmdShown(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 1, "shown FILE")
	mustBeShown(ts, args[0], ts.ReadFile(args[0]), "")
}

// cmdEcho starts a web server that repeats the credential it gets in one of
// many places of its answer, writes a configuration with one server for each
// place and transport, and sets ECHOES to how many there are.
func cmdEcho(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2, "echoes SECRET FILE")
	secret, answers := args[0], doortest.Echoes(args[0])
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	t := stageOf(ts).t
	doortest.Serve(t, l, func(r *http.Request) string {
		if !strings.Contains(r.Header.Get("Authorization"), secret) {
			return ""
		}
		if fine := beforeLate(r); fine != "" {
			return fine
		}
		return answers[r.URL.Query().Get("n")]
	})
	ts.Defer(func() { l.Close() })
	config := "listen: {http: []}\nlog: {level: debug, format: json}\nmcpServers:\n"
	n := 0
	for _, name := range doortest.Names(answers) {
		for _, kind := range []string{"http", "sse", "http&late"} {
			n++
			kind, late, _ := strings.Cut(kind, "&")
			config += fmt.Sprintf("  e%d: {type: %s, url: \"http://%s/?n=%s&%s\", headers: {Authorization: \"Bearer %s\"}, doorward: {allow_private: true, timeout: 2s}}\n",
				n, kind, l.Addr(), strings.ReplaceAll(name, " ", "+"), late, secret)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(config), 0o600))
	ts.Setenv("ECHOES", fmt.Sprint(n))
}

// beforeLate lets a session begin at the servers that repeat the credential only in later
// answers; "": another answer is due.
func beforeLate(r *http.Request) string {
	var m struct {
		ID     raw
		Method string
	}
	if !r.URL.Query().Has("late") || r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
		return ""
	}
	switch m.Method {
	case "initialize":
		body := `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"late","version":"1"}}}`
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: one\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	case "notifications/initialized":
		return "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
	case "server/discover":
		return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
	}
	return ""
}

// cmdEchoed asks every server that echoes makes, and looks for the secret in
// all that is printed, logged, recorded and stored.
func cmdEchoed(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 1, "echoed SECRET")
	var n int
	_, err := fmt.Sscan(ts.Getenv("ECHOES"), &n)
	ts.Check(err)
	for i := range n {
		server := fmt.Sprintf("e%d", i+1)
		out, errs := printedBy(ts, "", []string{"call", server, "x"})
		mustBeShown(ts, "call "+server, out+errs, args[0])
	}
	ts.Check(filepath.WalkDir(ts.MkAbs("state"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && doortest.Repeats(string(b), args[0]) {
			ts.Fatalf("%s holds the secret", path)
		}
		return err
	}))
}
