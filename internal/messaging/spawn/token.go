package spawn

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Names of the files that hold tokens, around the spawn's id.
const (
	tokenBegin = "spawn-"
	tokenEnd   = ".token"
)

// newToken is 256 random bits.
func newToken(prefix string) string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it does not fail
	return prefix + base64.RawURLEncoding.EncodeToString(b)
}

// writeToken makes a new file that only the user can read. The file is complete,
// or absent.
func writeToken(dir, id, token string) (string, error) {
	path := filepath.Join(dir, tokenBegin+id+tokenEnd)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("writing an agent's token: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("writing an agent's token: %w", errors.Join(err, os.Remove(path)))
	}
	return path, nil
}

// sweepTokens removes what a daemon that was killed left. The tokens were worth
// nothing from its end on.
func sweepTokens(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // there is none yet
	}
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, tokenBegin) && strings.HasSuffix(n, tokenEnd) && e.Type().IsRegular() {
			_ = os.Remove(filepath.Join(dir, n))
		}
	}
}

// socketName is the socket's in a runtime directory.
const socketName = "doorward.sock"

// environment is what an agent gets beside the minimum: its launcher's
// variables, and where `doorward connect` finds the daemon and the token.
func (o *Options) environment(a *agent, l *Launcher) map[string]string {
	env := maps.Clone(l.Env)
	if env == nil {
		env = map[string]string{}
	}
	env["DOORWARD_TOKEN_FILE"] = a.token
	env["DOORWARD_RUNTIME_DIR"] = o.RuntimeDir
	if o.DaemonKey != "" {
		env["DOORWARD_DAEMON_KEY"] = o.DaemonKey
	}
	switch dir, name := filepath.Split(o.Socket); {
	case name == socketName:
		env["DOORWARD_RUNTIME_DIR"] = filepath.Clean(dir)
	default:
		env["DOORWARD_SOCKET"] = o.Socket
	}
	return env
}
