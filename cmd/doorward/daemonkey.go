package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/daemon"
)

// daemonKey returns the public key of the daemon: that of the environment of a
// started agent, otherwise the one that the daemon wrote to the state directory. It is
// nil if no daemon has run there yet, or if only the runtime directory was given.
func (o *options) daemonKey() (ed25519.PublicKey, error) {
	if text := os.Getenv("DOORWARD_DAEMON_KEY"); text != "" {
		return parseDaemonKey("DOORWARD_DAEMON_KEY", text)
	}
	state, err := o.stateDir()
	if err != nil || o.runtime != "" && o.state == "" {
		return nil, nil
	}
	dir, err := durable.OpenRoot(state)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the daemon's key: %w", err)
	}
	defer dir.Close()
	b, err := durable.ReadSecret(dir, daemon.PublicProofName, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the daemon's key: %w", err)
	}
	return parseDaemonKey(daemon.PublicProofName, strings.TrimSpace(string(b)))
}

func parseDaemonKey(where, text string) (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%s does not contain a daemon's key", where)
	}
	return ed25519.PublicKey(b), nil
}
