package client

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// ErrNotOurs is wrapped by errors that mean that another process than the daemon
// listens on the socket.
var ErrNotOurs = errors.New("the process that serves the socket is not the daemon")

// Expect makes the client require a proof on every connection, before its first request,
// that the listener has the private key of key. Call it before the first request.
func (c *Client) Expect(key ed25519.PublicKey) { c.expected = key }

// proofTime is the time limit for the proof.
const proofTime = 10 * time.Second

// proven refuses a contained listener, and one that does not prove that it has the
// expected key. who is the kernel's information about the listener; nil: there is none.
func (c *Client) proven(ctx context.Context, conn net.Conn, who *attest.Credentials) error {
	if who != nil && peer.Nested(who) {
		return fmt.Errorf("%w: process %d is contained", ErrNotOurs, who.PID)
	}
	if c.expected == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn.SetDeadline(time.Now().Add(proofTime))
	proof, nonce, err := askProof(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("the daemon does not answer within %s: its process may be stopped or overloaded: %w", proofTime, err)
	}
	if err != nil {
		return fmt.Errorf("asking the daemon to prove itself: %w", err)
	}
	pid := int32(0)
	if who != nil {
		pid = who.PID
	}
	if err := peer.CheckProof(c.expected, nonce, proof, pid); err != nil {
		return fmt.Errorf("%w: %w", ErrNotOurs, err)
	}
	if stop() {
		return conn.SetDeadline(time.Time{})
	}
	return ctx.Err()
}

// askProof sends a nonce as the connection's first request and returns the answer.
func askProof(conn net.Conn) (proof, nonce string, err error) {
	var random [32]byte
	rand.Read(random[:]) // never fails
	nonce = base64.RawURLEncoding.EncodeToString(random[:])
	req, err := http.NewRequest(http.MethodGet, base+peer.ProofPath, nil)
	if err != nil {
		return "", "", err
	}
	req.Header.Set(peer.ProofNonce, nonce)
	if err := req.Write(conn); err != nil {
		return "", "", err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, peer.MaxProof))
	switch {
	case err != nil:
		return "", "", err
	case resp.StatusCode != http.StatusOK, resp.Close, r.Buffered() > 0:
		return "", "", fmt.Errorf("%w: it answered %s", ErrNotOurs, resp.Status)
	}
	return string(b), nonce, nil
}
