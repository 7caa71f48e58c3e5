package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// impostor listens on a socket as the daemon's own user. The kernel says nothing else about
// it.
type impostor struct {
	daemon string                          // the real socket
	answer func(i *impostor, nonce string) // what it says to a nonce

	mu   sync.Mutex
	seen bytes.Buffer // what clients sent
	conn net.Conn
}

// proof asks the real daemon, as any process of its user can.
func (i *impostor) proof(nonce string) string {
	c, err := net.Dial("unix", i.daemon)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: doorward\r\n%s: %s\r\n\r\n", peer.ProofPath, peer.ProofNonce, nonce)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

func (i *impostor) say(body string) {
	fmt.Fprintf(i.conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// pidOf splits a proof into the process that it names and the rest.
func pidOf(proof string) (int, string) {
	number, rest, _ := strings.Cut(proof, " ")
	pid, _ := strconv.Atoi(number)
	return pid, rest
}

var impostors = map[string]func(i *impostor, nonce string){
	"ends":           func(i *impostor, _ string) { i.conn.Close() },
	"knows no proof": func(i *impostor, _ string) { fmt.Fprint(i.conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") },
	"says nothing":   func(i *impostor, _ string) { i.say("") },
	"no HTTP":        func(i *impostor, _ string) { fmt.Fprint(i.conn, "{}\n") },
	"a redirection": func(i *impostor, _ string) {
		fmt.Fprint(i.conn, "HTTP/1.1 302 Found\r\nLocation: /proof\r\nContent-Length: 0\r\n\r\n")
	},
	"an endless proof": func(i *impostor, _ string) { i.say(strings.Repeat("1", 1<<20)) },
	"its own key, its own pid": func(i *impostor, nonce string) {
		_, key, _ := ed25519.GenerateKey(nil)
		proof, _ := peer.Prove(key, nonce, os.Getpid())
		i.say(proof)
	},
	"its own key, the daemon's pid": func(i *impostor, nonce string) {
		pid, _ := pidOf(i.proof(nonce))
		_, key, _ := ed25519.GenerateKey(nil)
		proof, _ := peer.Prove(key, nonce, pid)
		i.say(proof)
	},
	"an answer to another nonce": func(i *impostor, _ string) {
		i.say(i.proof(base64.RawURLEncoding.EncodeToString(make([]byte, 32))))
	},
	"the daemon's own answer": func(i *impostor, nonce string) { i.say(i.proof(nonce)) },
	"the daemon's own answer, with its own pid": func(i *impostor, nonce string) {
		_, rest := pidOf(i.proof(nonce))
		i.say(strconv.Itoa(os.Getpid()) + " " + rest)
	},
	"the daemon's own answer, and more": func(i *impostor, nonce string) {
		i.say(i.proof(nonce))
		i.say(`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
	},
}

// listen serves each connection.
func (i *impostor) listen(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			i.serve(c)
		}
	}()
}

// serve reads the first request, answers it, and reads the rest.
func (i *impostor) serve(c net.Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	i.conn = c
	r := bufio.NewReader(io.TeeReader(c, &i.seen))
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	i.answer(i, req.Header.Get(peer.ProofNonce))
	_, _ = io.Copy(io.Discard, r)
}

// sent is what clients have sent since the last call.
func (i *impostor) sent() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	defer i.seen.Reset()
	return i.seen.String()
}

// A process of the same user that listens in the daemon's place, without the key of its
// state directory, receives a nonce and nothing else. Neither answers of its own nor
// answers that it gets from the daemon change that.
func TestAnImpostorOnTheSocketHearsNothing(t *testing.T) {
	t.Parallel()
	home := shortDir(t)
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	serveAt(t, home, env)
	real := filepath.Join(home, ".local/state/doorward/run/doorward.sock")
	token := filepath.Join(home, "token")
	if err := os.WriteFile(token, []byte("not-for-impostors-0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	only := regexp.MustCompile(`^(GET /proof HTTP/1\.1\r\nHost: doorward\r\nUser-Agent: [^\r]+\r\nDoorward-Nonce: [\w-]{43}\r\n\r\n)+$`)
	n := 0
	for name, answer := range impostors {
		n++
		fake := filepath.Join(home, fmt.Sprint("f", n))
		i := &impostor{daemon: real, answer: answer}
		i.listen(t, fake)
		config := filepath.Join(home, fmt.Sprint("c", n, ".yaml"))
		if err := os.WriteFile(config, []byte("listen: {unix: "+fake+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, argv := range [][]string{{"tools"}, {"whoami"}, {"connect"}, {"call", "x", "y", "z=not-for-impostors"}, {"status"}, {"agent", "peers"}, {"auth", "session-start"}} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			cmd := exec.CommandContext(ctx, "doorward", append(argv, "--config", config)...)
			cmd.Dir, cmd.Env = home, append(env, "DOORWARD_TOKEN_FILE="+token)
			cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
			out, err := cmd.CombinedOutput()
			cancel()
			if sent := i.sent(); sent != "" && !only.MatchString(sent) || sent == "" && argv[0] != "auth" {
				t.Errorf("%s, %v: the impostor heard %q", name, argv, sent)
			}
			if argv[0] != "connect" && argv[0] != "auth" && (err == nil || cmd.ProcessState.ExitCode() == exitOK) {
				t.Errorf("%s, %v: %s", name, argv, out)
			}
			if bytes.Contains(out, []byte("not-for-impostors")) {
				t.Errorf("%s, %v: %s", name, argv, out)
			}
		}
	}
	if out, err := tryTools(home, env); err != nil {
		t.Errorf("the daemon itself: %s", out)
	}
	if out, err := tryTools(home, append(env, "DOORWARD_DAEMON_KEY="+base64.RawURLEncoding.EncodeToString(make([]byte, 32)))); err == nil {
		t.Errorf("with another key: %s", out)
	}
	// A program that asks for no proof can use the socket as before.
	c := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", real) }}}
	resp, err := c.Get("http://localhost/admin/v1/whoami")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("without a proof: %s", resp.Status)
	}
}

func tryTools(home string, env []string) ([]byte, error) {
	cmd := exec.Command("doorward", "tools")
	cmd.Dir, cmd.Env = home, env
	return cmd.CombinedOutput()
}

// A client without the key of a daemon, because the whole state directory is another one,
// still refuses a listener that is contained: the kernel says that it is in a pid namespace
// below. It accepts one in its own pid namespace.
func TestAListenerInAPidNamespaceBelowIsNoDaemon(t *testing.T) {
	t.Parallel()
	home := shortDir(t)
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	run := filepath.Join(home, ".local/state/doorward/run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, below := range map[string]bool{"beside": false, "below": true} {
		sock := filepath.Join(run, "doorward.sock")
		cmd := exec.Command("stranger", "listens", sock)
		cmd.Env = env
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if below {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		}
		said := newLines("")
		cmd.Stdout = said
		if err := cmd.Start(); err != nil {
			t.Skipf("no process can be contained here: %v", err)
		}
		if _, ok := said.take(regexp.MustCompile(`^ready$`), mailSoon); !ok {
			t.Fatalf("%s: not ready", name)
		}
		out, err := tryTools(home, env)
		if refused := err != nil && strings.Contains(string(out), "is contained"); refused != below {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if below && strings.Contains(said.String(), "a request") {
			t.Errorf("%s: heard a request", name)
		}
		if !below {
			if _, heard := said.take(regexp.MustCompile(`a request`), mailSoon); !heard {
				t.Errorf("%s: heard no request", name)
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.Remove(sock)
	}
}

// listens is a daemon that has no key.
func listens(sock string) error {
	l, err := net.Listen("unix", sock)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fmt.Println("a request")
			body := `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
		c.Close()
	}
}
