package onboard_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestEveryServerOfOneNameIsImported: names whose difference the configuration cannot carry lose no
// server, however many there are.
func TestEveryServerOfOneNameIsImported(t *testing.T) {
	t.Parallel()
	var entries []string
	for i := range 150 {
		entries = append(entries, fmt.Sprintf(`"搜索%c": {"command": "x", "args": ["%d"]}`, '一'+rune(i), i))
	}
	servers, _ := imported(t, "cursor", `{"mcpServers": {`+strings.Join(entries, ",")+`}}`)
	if len(servers) != 150 {
		t.Errorf("%d servers of 150 are imported", len(servers))
	}
}
