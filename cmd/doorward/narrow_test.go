package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/upstream/process"
)

// oddTexts are texts of which a printer may have to show any part.
var oddTexts = []string{"", "a", "notes/add_note", "a b c", strings.Repeat("word ", 60), strings.Repeat("x", 300), strings.Repeat("ä€", 90)}

// TestPrintersFitTheWidthOfATerminal: each text can be printed at every width. From 40
// columns, the least width that a terminal is assumed to have, each line fits.
func TestPrintersFitTheWidthOfATerminal(t *testing.T) {
	t.Parallel()
	for width := 1; width <= 200; width++ {
		for _, text := range oddTexts {
			for printer, out := range printedAt(text, width) {
				for line := range strings.Lines(out) {
					if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width && width >= 40 {
						t.Errorf("%s writes %d columns of %d: %q", printer, n, width, line)
					}
				}
			}
		}
	}
}

// printedAt returns what the printers write of a text at a width.
func printedAt(text string, width int) map[string]string {
	s := admin.Status{Version: text, Listeners: []admin.Listener{{Network: "unix", Addr: text, State: "listening", Auth: "peer", Reason: text}},
		Servers: []admin.Server{{Name: text, Kind: "stdio", State: "idle", Era: "unknown", Sandbox: text, Reason: text, Stderr: []string{text},
			Unseen: []string{text}, Unmatched: []string{text}, Containment: []admin.Measure{{Name: text, State: process.Unavailable, Detail: text}}}}}
	out := map[string]string{"statusNarrow": statusNarrow(s, width), "foldLine": foldLine(text, width), "fit": fit(text, width)}
	for _, outcome := range []string{"ok", "error", "denied", "pending"} {
		l := logged{Time: time.Now(), Client: text, Server: text, Tool: text, Action: "tools/call", Outcome: outcome, MS: 1e5, Bytes: 1e9}
		out["actLine "+outcome] = actLine(l, width)
		l.Reason, l.Action = text, text
		out["actLine "+outcome+" with a reason"] = actLine(l, width)
	}
	for most := 1; most <= 4; most++ {
		out[fmt.Sprint("folded ", most)] = folded(text, 4, width, most)
	}
	return out
}
