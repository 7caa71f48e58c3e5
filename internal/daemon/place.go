package daemon

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/internal/daemon/config"
)

// placeOf is where a rule of the configuration stands, FILE:LINE; empty for rules of
// elsewhere, which say so themselves.
func (d *Daemon) placeOf(rule string) string {
	file := d.o.Config.File
	if !strings.HasPrefix(rule, "mcpServers.") || file == "" {
		return ""
	}
	line := config.LineOf(file, rule)
	if line == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}
