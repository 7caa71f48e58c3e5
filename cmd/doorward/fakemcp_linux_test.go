package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fakeRuns are the modes of fakemcp that take over the process.
var fakeRuns = map[string]func([]string) error{"proxy": runProxy, "store": runStore, "wire": runWire}

// fakeMCP is the stdio server behind the scripts' daemons:
//
//	fakemcp legacy|modern [MARK…]   well-behaved until one of its tools is called
//	fakemcp both MARK…              answers in either era
//	fakemcp offers FILE MARK…       legacy; offers what stands in FILE
//	fakemcp dead                    ends at once
//	fakemcp babble                  prints what is no message and ends
//	fakemcp mute                    reads and never answers
//	fakemcp stubborn                legacy; ignores TERM and the end of its input
//	fakemcp grandchild              what the tool fork leaves behind
//	fakemcp hides                   hides characters in all it says; see printed_linux_test.go
//	fakemcp cert                    no server: writes cert.pem and key.pem
//	fakemcp agent [ARG…]            no server: a shell reads the prompt; see fakeagent_linux_test.go
//	fakemcp proxy NAME NETWORK ADDR no server: see proxy_linux_test.go
//	fakemcp store ADDR FILE         no server: see fakestore_linux_test.go
//	fakemcp wire ADDR               the server is at the other end; see waitserver_linux_test.go
//	fakemcp changing ADDR MARK      the same, and it ends with the other end (build tag changes)
//
// It keeps the bytes of ids, params and arguments as they came, so that a
// script sees what a server sees. MARK holds $WORK, by which `children` knows
// the processes of a script.
func fakeMCP() {
	mode := "legacy"
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch mode {
	case "dead":
		fmt.Fprintln(os.Stderr, "fakemcp: /srv/private/fakemcp.conf: no such file")
		os.Exit(1)
	case "babble":
		fmt.Print("Traceback (most recent call last):\n  File \"/srv/private/server.py\"\n{\"jsonrpc\": oops\n")
		os.Exit(1)
	case "cert":
		if err := makeCert(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	case "proxy", "store", "wire", "changing":
		if err := fakeRuns[mode](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	case "agent":
		os.Exit(fakeAgent(os.Args[2:]))
	case "grandchild":
		deaf()
		select {}
	case "stubborn":
		deaf()
	case "hides":
		fmt.Fprintln(os.Stderr, unseen)
	}
	(&fake{mode: mode}).run()
	if mode == "stubborn" {
		select {}
	}
}

// deaf ignores every request to end.
func deaf() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() { // so that select{} is no deadlock
		for {
			time.Sleep(time.Hour)
		}
	}()
}

type fake struct {
	mode  string
	out   sync.Mutex
	count atomic.Int64 // calls of the tool count
}

// raw is JSON text as it came.
type raw = json.RawMessage

type fakeRequest struct {
	ID     raw    `json:"id"`
	Method string `json:"method"`
	Params raw    `json:"params"`
}

func (f *fake) run() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r fakeRequest
		if json.Unmarshal(line, &r) != nil || r.ID == nil || r.Method == "" || f.mode == "mute" {
			continue
		}
		go f.serve(r)
	}
}

func (f *fake) write(text string) {
	f.out.Lock()
	defer f.out.Unlock()
	os.Stdout.WriteString(text + "\n")
}

func (f *fake) result(r fakeRequest, result string) {
	f.write(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + result + `}`)
}

func (f *fake) fail(r fakeRequest, code int, message, data string) {
	f.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s,"data":%s}}`, r.ID, code, quote(message), data))
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string always can be
	return string(b)
}

func (f *fake) legacy() bool { return f.mode != "modern" }
func (f *fake) modern() bool { return f.mode == "modern" || f.mode == "both" }

const fakeTools = `{"name":"echo","title":"Echo","description":"gives back what it gets","inputSchema":{"type":"object"},"x-vendor":{"n":1.0}}`

func (f *fake) serve(r fakeRequest) {
	if f.mode == "hides" && f.hides(r) || f.mode == "offers" && f.offered(r) || f.modern() && f.handles(r) {
		return
	}
	switch {
	case r.Method == "initialize" && f.legacy():
		var p struct{ ProtocolVersion string }
		_ = json.Unmarshal(r.Params, &p) // on an error the version is empty
		f.result(r, `{"protocolVersion":`+quote(p.ProtocolVersion)+`,"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"fakemcp","version":"1.0"},"instructions":"Only for tests."}`)
	case r.Method == "server/discover" && f.modern():
		f.result(r, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fakemcp","version":"1.0"}}}`)
	case r.Method == "ping":
		f.result(r, `{}`)
	case r.Method == "tools/list":
		f.result(r, `{"tools":[`+fakeTools+f.plainTools()+`]}`)
	case r.Method == "prompts/list":
		f.result(r, `{"prompts":[{"name":"greet","description":"says hello"}]}`)
	case r.Method == "prompts/get":
		f.result(r, `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}]}`)
	case r.Method == "resources/list":
		f.result(r, `{"resources":[{"uri":"file:///a.txt","name":"a"}]}`)
	case r.Method == "resources/read":
		f.result(r, `{"contents":[{"uri":"file:///a.txt","text":"contents of a"}]}`)
	case r.Method == "tools/call":
		var p struct {
			Name      string
			Arguments raw
			Meta      struct{ ProgressToken raw } `json:"_meta"`
		}
		_ = json.Unmarshal(r.Params, &p) // on an error the name is empty
		f.call(r, p.Name, p.Arguments, p.Meta.ProgressToken)
	case strings.HasPrefix(r.Method, "vendor/"):
		f.result(r, `{"method":`+quote(r.Method)+`,"params":`+string(r.Params)+`,"vendor":{"z":1.0,"a":9007199254740993}}`)
	default:
		f.fail(r, -32601, "Method not found", "null")
	}
}

func (f *fake) plainTools() string {
	var b strings.Builder
	for _, name := range []string{"secret", "env", "pid", "count", "sleep", "large", "progress", "error", "shout", "crash", "hang", "garbage",
		"twice", "endless", "wrongid", "huge", "fork", "knock", "open", "hoard", "quiz", "task"} {
		fmt.Fprintf(&b, `,{"name":%q,"description":"the tool %s","inputSchema":{"type":"object"}}`, name, name)
	}
	return b.String()
}

func (f *fake) text(r fakeRequest, s string) {
	f.result(r, `{"content":[{"type":"text","text":`+quote(s)+`}]}`)
}

// call runs one tool. Those from shout on misbehave.
func (f *fake) call(r fakeRequest, name string, arguments, token raw) {
	switch name {
	case "echo":
		args := string(bytes.TrimSpace(arguments))
		if args == "" {
			args = "{}"
		}
		f.result(r, `{"content":[{"type":"text","text":`+quote(args)+`}],"structuredContent":`+args+`,"vendor":{"z":1.0,"a":9007199254740993}}`)
	case "secret":
		f.text(r, "what only some may see")
	case "env":
		env := os.Environ()
		sort.Strings(env)
		f.text(r, strings.Join(env, "\n"))
	case "pid":
		f.text(r, "pid "+strconv.Itoa(os.Getpid()))
	case "knock":
		f.text(r, knock(arguments))
	case "open":
		f.text(r, open(arguments))
	case "hoard":
		f.text(r, hoard(arguments))
	case "count":
		f.text(r, "call "+strconv.FormatInt(f.count.Add(1), 10))
	case "sleep":
		var a struct {
			Ms    int
			Until string // a file, until it exists
		}
		_ = json.Unmarshal(arguments, &a) // on an error it does not sleep
		time.Sleep(time.Duration(a.Ms) * time.Millisecond)
		for _, err := os.Stat(a.Until); a.Until != "" && err != nil; _, err = os.Stat(a.Until) {
			time.Sleep(10 * time.Millisecond)
		}
		f.text(r, "awake")
	case "large":
		f.text(r, strings.Repeat("x", 3_000_000)+"-end")
	case "progress":
		f.write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(token) + `,"progress":1,"total":2}}`)
		f.text(r, "done, token "+string(token))
	case "error":
		f.fail(r, -32050, "the tool says no", `{"z":1.0,"a":[]}`)
	default:
		f.misbehave(r, name)
	}
}

// knock connects to the daemon's socket from two child processes, of which the second has
// left the server's session. How is the mode in which they do it (see stranger), by default
// ask.
func knock(arguments raw) string {
	a := struct{ Socket, How string }{How: "ask"}
	if json.Unmarshal(arguments, &a) != nil || a.Socket == "" {
		return "no socket to knock at"
	}
	said := "turned away"
	for _, attr := range []*syscall.SysProcAttr{{}, {Setsid: true}} {
		cmd := exec.Command("/proc/self/exe", append(strings.Fields(a.How), a.Socket)...)
		cmd.Args[0], cmd.SysProcAttr = "stranger", attr
		if out, _ := cmd.Output(); bytes.HasPrefix(out, []byte("200")) {
			said = "answered: " + string(out)
		}
	}
	return said
}

// hoard takes memory, a little at a time.
func hoard(arguments raw) string {
	var a struct{ MiB int }
	if json.Unmarshal(arguments, &a) != nil {
		return "nothing to hoard"
	}
	var all [][]byte
	for range a.MiB {
		all = append(all, bytes.Repeat([]byte("x"), 1<<20))
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Sprintf("hoarded %d", len(all))
}

// open tries to open a file or directory, for reading and for writing.
func open(arguments raw) string {
	var a struct{ Path string }
	if json.Unmarshal(arguments, &a) != nil {
		return "nothing to open"
	}
	said := ""
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
		f, err := os.OpenFile(a.Path, flag, 0)
		var errno syscall.Errno
		switch {
		case errors.As(err, &errno):
			fmt.Fprintf(os.Stderr, "Error: %s: '%s'\n", unix.ErrnoName(errno), a.Path)
			said += unix.ErrnoName(errno) + " "
			continue
		case err != nil:
			return err.Error()
		}
		b, _ := io.ReadAll(f)
		said += fmt.Sprintf("opened %q ", b)
		f.Close()
	}
	return said
}

func (f *fake) misbehave(r fakeRequest, name string) {
	switch name {
	case "shout":
		fmt.Fprintln(os.Stderr, "SHOUTED-SECRET on standard error")
		f.text(r, "shouted")
	case "crash":
		os.Exit(7)
	case "hang":
	case "garbage":
		f.write("Traceback: /srv/private/server.py line 1\n{\"jsonrpc\": oops")
	case "twice":
		f.write(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"content":[],"content":["/srv/private"]}}`)
	case "wrongid":
		f.write(`{"jsonrpc":"2.0","id":424242,"result":{"content":[{"type":"text","text":"somebody else's"}]}}`)
	case "huge":
		f.text(r, strings.Repeat("x", 17<<20))
	case "endless":
		f.out.Lock()
		block := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := os.Stdout.Write(block); err != nil {
				return
			}
		}
	case "fork":
		cmd := exec.Command("/proc/self/exe", append([]string{"grandchild"}, os.Args[2:]...)...)
		cmd.Args[0] = "fakemcp"
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			f.text(r, err.Error())
			return
		}
		f.text(r, "forked")
	default:
		f.fail(r, -32602, "Unknown tool", "null")
	}
}
