package daemon

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
)

// Options configures a Daemon.
type Options struct {
	Config     *config.Config
	StateDir   string
	RuntimeDir string
	Token      secret.Value // DOORWARD_TOKEN, or empty
	TokenFile  string       // --token-file, or empty
	Dev        bool
	Version    string
	Log        *slog.Logger
	Say        io.Writer // receives a line for each listener, then `ready`
}

// AuditDir returns the directory of the audit log.
func AuditDir(state string, c *config.Config) string {
	if c != nil && c.Audit.Dir != "" {
		return c.Audit.Dir
	}
	return filepath.Join(state, "audit")
}

// nodeName returns the name of a daemon among those that share a database.
func nodeName(c *config.Config) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return cmp.Or(c.Store.Node, host)
}
