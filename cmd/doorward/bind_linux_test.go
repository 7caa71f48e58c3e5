package main

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/test/doortest"
)

// These tests check the bind table on the real program: every form of address, with every
// credential and setting, one listener each. A refused listener must be absent from the
// kernel's tables of sockets.

// form is one way to write an address.
type form struct {
	addr  string // PORT stands for the port
	class string // loopback, other, or bad: no address at all
	bound string // what the kernel shows when it is served
}

var bindForms = []form{
	{"127.0.0.1:PORT", "loopback", "127.0.0.1"},
	{"127.8.9.10:PORT", "loopback", "127.8.9.10"},
	{"localhost:PORT", "loopback", "127.0.0.1"},
	{"LocalHost:PORT", "loopback", "127.0.0.1"},
	{"[::1]:PORT", "loopback", "::1"},
	{"[0:0:0:0:0:0:0:1]:PORT", "loopback", "::1"},

	{"0.0.0.0:PORT", "other", "0.0.0.0"},
	{"[::]:PORT", "other", "::"},
	{":PORT", "other", "::"},
	{"[::ffff:127.0.0.1]:PORT", "other", "127.0.0.1"},
	{"[::ffff:7f00:1]:PORT", "other", "127.0.0.1"},
	{"[::ffff:0.0.0.0]:PORT", "other", "0.0.0.0"},
	{"[::1%lo]:PORT", "other", "::1"},

	{"127.1:PORT", "bad", ""},
	{"127:PORT", "bad", ""},
	{"0:PORT", "bad", ""},
	{"2130706433:PORT", "bad", ""},
	{"0x7f000001:PORT", "bad", ""},
	{"0177.0.0.1:PORT", "bad", ""},
	{"127.0.0.1.:PORT", "bad", ""},
	{"[127.0.0.1]:PORT", "bad", ""},
	{"localhost.:PORT", "bad", ""},
	{"localhoſt:PORT", "bad", ""},
	{"１２７.0.0.1:PORT", "bad", ""},
}

// elsewhere are names, and addresses that this host does not have. None counts as loopback,
// whatever it leads to, and none is bound.
var elsewhere = []form{
	{"192.0.2.7:PORT", "elsewhere", ""},
	{"[2001:db8::7]:PORT", "elsewhere", ""},
	{"[fe80::1%lo]:PORT", "elsewhere", ""},
	{"gateway.example:PORT", "elsewhere", ""},
	{"sub.localhost:PORT", "elsewhere", ""},
	{"127.0.0.1.nip.example:PORT", "elsewhere", ""},
}

// listener is one line of the table.
type listener struct {
	form
	auth       string
	tls        bool
	requireTLS bool
	port       int
}

// bindCredential is what the daemon is started with.
type bindCredential struct {
	name  string
	bad   bool // cannot be used
	set   bool // counts everywhere
	made  bool // counts where a listener says auth: required
	token string
	mode  os.FileMode // of the file that holds it; 0: it is in no file
	alone string      // in the variable, beside the file
}

// noFile names a file that is not there.
const noFile = os.ModeIrregular

var credentials = []bindCredential{
	{name: "none"},
	{name: "env", set: true, token: "correct-horse-battery"},
	{name: "file", set: true, mode: 0o600, token: "correct-horse-in-a-file"},
	{name: "made", made: true},
	{name: "short", bad: true, token: "fifteen-letters"},
	{name: "blank", bad: true, token: "                       "},
	{name: "unprintable", bad: true, token: "fifteen-letters-\u00fc-and-more"},
	{name: "missing file", bad: true, mode: noFile},
	{name: "file for the group", bad: true, mode: 0o640, token: "correct-horse-in-a-file"},
	{name: "file for all", bad: true, mode: 0o644, token: "correct-horse-in-a-file"},
	{name: "file that all can write", bad: true, mode: 0o602, token: "correct-horse-in-a-file"},
	{name: "empty file", bad: true, mode: 0o600},
	{name: "blank file", bad: true, mode: 0o600, token: " \n\t "},
	{name: "short file", bad: true, mode: 0o600, token: "  fifteen-letters  "},
	{name: "directory", bad: true, mode: os.ModeDir},
	{name: "pipe", bad: true, mode: os.ModeNamedPipe},
	{name: "bad file beside a good variable", bad: true, alone: "correct-horse-battery", mode: 0o644, token: "correct-horse-in-a-file"},
}

// outcome returns what the bind table demands: refused, open, or token.
func (l *listener) outcome(c bindCredential) string {
	loopback := l.class == "loopback"
	switch {
	case c.bad, l.class == "bad", l.class == "elsewhere", l.requireTLS && !l.tls, !loopback && l.auth == "none":
		return "refused"
	case !loopback && (c.set || c.made && l.auth == "required"), loopback && l.auth == "required", loopback && c.set && l.auth == "auto":
		return "token"
	case loopback:
		return "open"
	}
	return "refused"
}

// bindTable is every listener that is tried.
func bindTable(t *testing.T) []*listener {
	var all []*listener
	for _, f := range slices.Concat(bindForms, elsewhere) {
		for _, auth := range []string{"auto", "required", "none"} {
			all = append(all, &listener{form: f, auth: auth})
		}
	}
	for _, f := range bindForms[:10] {
		all = append(all, &listener{form: f, auth: "auto", tls: true, requireTLS: true}, &listener{form: f, auth: "required", tls: true},
			&listener{form: f, auth: "auto", requireTLS: true})
	}
	if ok, _ := condition("ipv6"); !ok {
		t.Run("IPv6", func(t *testing.T) { t.Skip("this host has no ::1: the rows of IPv6 addresses are left out") })
		all = slices.DeleteFunc(all, func(l *listener) bool { return strings.Contains(l.bound, "::") })
	}
	ports := doortest.FreePorts(t, len(all))
	for i, l := range all {
		l.port = ports[i]
	}
	return all
}

func (l *listener) text() string {
	return strings.ReplaceAll(l.addr, "PORT", fmt.Sprint(l.port))
}

func (l *listener) yaml() string {
	s := fmt.Sprintf("    - {addr: %q, auth: %s, require_tls: %v", l.text(), l.auth, l.requireTLS)
	if l.tls {
		s += ", tls: {cert: cert.pem, key: key.pem}"
	}
	return s + "}\n"
}

func TestBindTable(t *testing.T) {
	t.Parallel()
	for _, c := range credentials {
		t.Run(c.name, func(t *testing.T) {
			table := bindTable(t)
			d := startBound(t, c, table)
			bound := listening(t)
			states := d.states()
			for _, l := range table {
				d.check(l, bound[l.port], states[l.text()])
			}
			if c.bad {
				d.checkFails()
			}
			for _, secret := range []string{"correct-horse", "fifteen-letters"} {
				if strings.Contains(d.log.String(), secret) {
					t.Errorf("the token is on stderr")
				}
			}
		})
	}
}

// bindDaemon is a daemon with the whole table.
type bindDaemon struct {
	bindCredential
	t   *testing.T
	dir string
	env []string
	log *lines

	flags []string
}

func startBound(t *testing.T, c bindCredential, table []*listener) *bindDaemon {
	t.Helper()
	d := &bindDaemon{bindCredential: c, t: t, dir: t.TempDir(), log: newLines("")}
	d.env = []string{"HOME=" + d.dir, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "DOORWARD_STATE_DIR=" + filepath.Join(d.dir, "s"),
		"DOORWARD_RUNTIME_DIR=" + filepath.Join(d.dir, "r"), "DOORWARD_CONFIG=" + filepath.Join(d.dir, "doorward.yaml")}
	d.command("fakemcp", "cert")
	config := "listen:\n  http:\n"
	for _, l := range table {
		config += l.yaml()
	}
	d.flags = d.offer()
	if err := os.WriteFile(filepath.Join(d.dir, "doorward.yaml"), []byte(config+"mcpServers: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("doorward", append([]string{"serve"}, d.flags...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = d.dir, d.env, d.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // its status says the rest
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v\n%s", err, d.log)
		}
	})
	if _, ok := d.log.take(regexp.MustCompile(`^ready$`), mailSoon); !ok {
		t.Fatalf("not ready:\n%s", d.log)
	}
	return d
}

// offer puts the credential where the daemon looks for it.
func (d *bindDaemon) offer() (flags []string) {
	d.t.Helper()
	if d.made {
		d.token = strings.TrimSpace(d.command("doorward", "token", "new", "ci"))
		return nil
	}
	if d.alone != "" {
		d.env = append(d.env, "DOORWARD_TOKEN="+d.alone)
	}
	path := filepath.Join(d.dir, "token")
	var err error
	switch d.mode {
	case 0:
		d.env = append(d.env, "DOORWARD_TOKEN="+d.token)
		return nil
	case noFile:
	case os.ModeDir:
		err = os.Mkdir(path, 0o700)
	case os.ModeNamedPipe:
		err = syscall.Mkfifo(path, 0o600)
	default:
		err = errors.Join(os.WriteFile(path, []byte(d.token), 0o600), os.Chmod(path, d.mode))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return []string{"--token-file", path}
}

// checkFails: `doorward check` reports the credential that serve refuses.
func (d *bindDaemon) checkFails() {
	d.t.Helper()
	cmd := exec.Command("doorward", append([]string{"check", "--config", "one.yaml"}, d.flags...)...)
	cmd.Dir, cmd.Env = d.dir, d.env
	if err := os.WriteFile(filepath.Join(d.dir, "one.yaml"), []byte("mcpServers: {}\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	out, _ := cmd.CombinedOutput() // the exit status says it
	if cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(string(out), "the token is not usable (") {
		d.t.Errorf("check: %s", out)
	}
}

func (d *bindDaemon) command(argv ...string) string {
	d.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = d.dir, d.env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("%v: %v\n%s", argv, err, errs.String())
	}
	return string(out)
}

// states are the listeners as `status` gives them, by the configured address.
func (d *bindDaemon) states() map[string]admin.Listener {
	var s admin.Status
	if err := json.Unmarshal([]byte(d.command("doorward", "status", "--json")), &s); err != nil {
		d.t.Fatal(err)
	}
	all := make(map[string]admin.Listener)
	for _, l := range s.Listeners {
		all[l.Addr] = l
	}
	return all
}

// check compares one listener with its outcome.
func (d *bindDaemon) check(l *listener, bound []string, refused admin.Listener) {
	d.t.Helper()
	want := l.outcome(d.bindCredential)
	what := fmt.Sprintf("%s auth %s tls %v require_tls %v, credential %s", l.text(), l.auth, l.tls, l.requireTLS, d.name)
	said := strings.Contains(d.log.String(), "refused "+l.text()+": ") || strings.Contains(d.log.String(), "refused "+fmt.Sprintf("%q", l.text())+": ")
	if want == "refused" {
		if len(bound) > 0 || !said || l.class != "bad" && refused.State != "refused" {
			d.t.Errorf("%s: bound %v, said %v, status %+v; it must be refused", what, bound, said, refused)
		}
		return
	}
	if said || !slices.Contains(bound, l.bound) || l.class == "loopback" && slices.ContainsFunc(bound, isOffHost) {
		d.t.Errorf("%s: said %v, bound %v, want %s", what, said, bound, l.bound)
		return
	}
	without, with := d.ask(l, ""), d.ask(l, d.token)
	switch {
	case want == "open" && without != http.StatusOK:
		d.t.Errorf("%s: %d without a token", what, without)
	case want == "token" && without != http.StatusUnauthorized:
		d.t.Errorf("%s: %d without a token", what, without)
	case want == "token" && (d.set || d.made) != (with == http.StatusOK):
		d.t.Errorf("%s: %d with the token", what, with)
	}
}

func isOffHost(ip string) bool { return !netip.MustParseAddr(ip).IsLoopback() }

// ask lists the tools over that listener, with the token or without one.
func (d *bindDaemon) ask(l *listener, token string) int {
	d.t.Helper()
	scheme, host := "http", l.bound
	if l.tls {
		scheme = "https"
	}
	switch host {
	case "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
	req, err := http.NewRequest(http.MethodPost, scheme+"://"+net.JoinHostPort(host, fmt.Sprint(l.port))+"/mcp", strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/list"}}
	if strings.TrimSpace(token) != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	c := http.Client{Timeout: mailSoon, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the certificate is the test's own
	resp, err := c.Do(req)
	if err != nil {
		d.t.Errorf("%s: %v", l.text(), err)
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the status is what counts
	return resp.StatusCode
}

// listening reads the kernel's tables: the addresses that are listened on, by
// port.
func listening(t *testing.T) map[int][]string {
	t.Helper()
	all := make(map[int][]string)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" {
				continue
			}
			var port int
			addr, hexPort, _ := strings.Cut(f[1], ":")
			if _, err := fmt.Sscanf(hexPort, "%X", &port); err != nil {
				t.Fatal(err)
			}
			all[port] = append(all[port], kernelAddr(t, addr))
		}
	}
	return all
}

// kernelAddr reads an address as /proc writes it: words of 32 bits, each with
// its least byte first.
func kernelAddr(t *testing.T, text string) string {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip.String()
}
