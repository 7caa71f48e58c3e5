package daemon

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/internal/daemon/config"
)

// placeOf returns the place of a rule in the configuration, FILE:LINE; empty for other rules,
// which name their place themselves.
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
