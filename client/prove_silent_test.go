package client

import (
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
)

// TestADaemonThatDoesNotAnswerIsNamed shows that a command whose daemon accepts its connection
// and never answers, as a stopped process does, says so after the limit.
func TestADaemonThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		c := &Client{expected: make(ed25519.PublicKey, ed25519.PublicKeySize)}
		err := c.proven(t.Context(), ours, nil)
		if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrNotOurs) || !strings.Contains(err.Error(), "does not answer within 10s") {
			t.Errorf("the error is %v", err)
		}
	})
}
