package client

import (
	"bufio"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// Whoever listens has to prove itself with the first answer on each connection,
// and with nothing behind it: what came along would be taken for the answer to
// the first request.
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
