package client

import (
	"bufio"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// A listener proves its identity with the first response on each connection. Bytes behind
// the proof are refused, because they would be read as the response to the first request.
func TestAConnectionBeginsWithAProof(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		status, more string
		nonce        string // that is answered; empty: the one that was sent
		pid          int
		good         bool
	}{
		"as it must be":           {status: "200 OK", pid: os.Getpid(), good: true},
		"with an answer behind":   {status: "200 OK", pid: os.Getpid(), more: "HTTP/1.1 200 OK\r\n\r\n"},
		"another status":          {status: "201 Created", pid: os.Getpid()},
		"for another nonce":       {status: "200 OK", pid: os.Getpid(), nonce: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		"for another process":     {status: "200 OK", pid: os.Getpid() + 1},
		"and the connection ends": {status: "200 OK\r\nConnection: close", pid: os.Getpid()},
	} {
		sock := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			nonce := c.nonce
			if nonce == "" {
				nonce = req.Header.Get(peer.ProofNonce)
			}
			proof, _ := peer.Prove(key, nonce, c.pid)
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s%s", c.status, len(proof), proof, c.more)
			_, _ = http.ReadRequest(r) // until the client goes
		}()
		cl := New(sock, "test")
		cl.Expect(public)
		conn, err := cl.dial(t.Context(), "", "")
		if (err == nil) != c.good || err != nil && !errors.Is(err, ErrNotOurs) {
			t.Errorf("%s: %v", name, err)
		}
		if conn != nil {
			conn.Close()
		}
		l.Close()
	}
}

// A socket keeps the number of the process that made it listen, even after that process has
// ended and the daemon may have the same number. The client sends no request to such a
// socket. It accepts the socket of a process that lives, as under socket activation.
func TestASocketOfAProcessThatIsGoneIsNoDaemon(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, gone := range map[string]bool{"lives": false, "is gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sock := filepath.Join(t.TempDir(), "s")
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: sock}); err != nil {
				t.Fatal(err)
			}
			file := os.NewFile(uintptr(fd), sock)
			defer file.Close()
			manager := exec.Command(os.Args[0], "-test.run=^TestManagerOfASocket$")
			manager.Env, manager.ExtraFiles = append(os.Environ(), "LISTEN_ON=3"), []*os.File{file}
			stop, err := manager.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			said, err := manager.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := manager.Start(); err != nil {
				t.Fatal(err)
			}
			pid := manager.Process.Pid
			if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || line != "listening\n" {
				t.Fatalf("%q %v", line, err)
			}
			end := func() { stop.Close(); _ = manager.Wait() }
			if gone {
				end()
			} else {
				defer end()
			}
			l, err := net.FileListener(file)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			heard := make(chan bool, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				req, err := http.ReadRequest(bufio.NewReader(conn))
				heard <- err == nil
				if err == nil {
					proof, _ := peer.Prove(key, req.Header.Get(peer.ProofNonce), pid)
					fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(proof), proof)
					_, _ = io.Copy(io.Discard, conn) // until the client goes
				}
			}()
			cl := New(sock, "test")
			cl.Expect(public)
			conn, err := cl.dial(t.Context(), "", "")
			if (err == nil) == gone {
				t.Errorf("%v", err)
			}
			if conn != nil {
				conn.Close()
			}
			if gone && <-heard {
				t.Error("the socket of a process that is gone was sent a request")
			}
		})
	}
}

// TestManagerOfASocket is a helper process of the test above: it makes an inherited socket
// listen.
func TestManagerOfASocket(t *testing.T) {
	if os.Getenv("LISTEN_ON") == "" {
		return
	}
	if err := syscall.Listen(3, 8); err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
