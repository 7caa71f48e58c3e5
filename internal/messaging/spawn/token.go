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

// Prefix and suffix of the token files, around the spawn's id.
const (
	tokenBegin = "spawn-"
	tokenEnd   = ".token"
)

// newToken returns a token of 256 random bits.
func newToken(prefix string) string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return prefix + base64.RawURLEncoding.EncodeToString(b)
}

// writeToken writes a token to a new file that only the user can read. The file is
// complete, or absent.
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

// sweepTokens removes the token files of a daemon that was killed. Their tokens have been
// invalid since its end.
func sweepTokens(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the directory does not exist yet
	}
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, tokenBegin) && strings.HasSuffix(n, tokenEnd) && e.Type().IsRegular() {
			_ = os.Remove(filepath.Join(dir, n))
		}
	}
}

// socketName is the file name of the socket in a runtime directory.
const socketName = "doorward.sock"

// environment returns the variables of an agent beside the minimum: its launcher's, and
// the location of the daemon and the token for `doorward connect`.
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
