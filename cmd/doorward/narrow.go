package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/upstream/process"
)

// Commands shorten their output to the width of the terminal, and print all of it
// with -v.

// mostFolded is the most lines of one text that are shown without -v.
const mostFolded = 3

// narrows adds the flag -v to a command.
func (o *options) narrows() {
	o.set.BoolVarP(&o.verbose, "verbose", "v", false, "print all, in lines of any length")
}

// narrowed cuts each line of a text to the terminal's width, unless -v is given.
func (o *options) narrowed(text string) string {
	if o.verbose {
		return text
	}
	width := columns()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = fit(strings.TrimRight(line, " "), width)
	}
	return strings.Join(lines, "\n")
}

// folded breaks a text into indented lines of at most width characters and returns the
// first most of them. The last ends with an ellipsis if the text is longer.
func folded(text string, indent, width, most int) string {
	var lines []string
	room := width - indent
	line := ""
	for word := range strings.FieldsSeq(plaintext.Line(text)) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= room:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	lines = append(lines, line)
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] = fit(lines[most-1]+" …", room)
	}
	pad := strings.Repeat(" ", indent)
	for i := range lines {
		lines[i] = pad + fit(lines[i], room)
	}
	return strings.Join(lines, "\n") + "\n"
}

// statusNarrow returns the state of the daemon in lines of at most width characters: one
// for each listener and server, followed by its problems.
func statusNarrow(s admin.Status, width int) string {
	var b strings.Builder
	ready := "ready"
	if !s.Ready {
		ready = "not ready"
	}
	head := fmt.Sprintf("doorward %s  %s  sessions %d  audit %s at %d", s.Version, ready, s.Sessions, s.Audit.State, s.Audit.Seq)
	b.WriteString(fit(head, width) + "\n")
	if text := unrecorded(s.Audit); text != "" {
		b.WriteString(folded(text, 4, width, mostFolded+1))
	}
	if text := notInForce(s.Configuration); text != "" {
		b.WriteString(folded(text, 4, width, mostFolded))
	}
	b.WriteString("\n")
	for _, l := range s.Listeners {
		line := fmt.Sprintf("%-9s  %-4s  auth %-5s  ", l.State, l.Network, l.Auth)
		b.WriteString(strings.TrimRight(line+shortPath(plaintext.Line(l.Addr), width-len(line)), " ") + "\n")
		if l.Reason != "" {
			b.WriteString(folded(l.Reason, 4, width, mostFolded))
		}
		for _, reason := range slices.Sorted(maps.Keys(l.Refused)) {
			b.WriteString(folded(fmt.Sprintf("refused %d: %s", l.Refused[reason], reason), 4, width, 1))
		}
	}
	if a := s.Authentication; a.Missing+a.Invalid+a.Limited > 0 {
		b.WriteString(fit(fmt.Sprintf("not authenticated: no token %d, invalid %d, not checked %d", a.Missing, a.Invalid, a.Limited), width) + "\n")
	}
	if why := s.Authentication.Issuer; why != "" {
		b.WriteString(folded("access tokens: "+why, 0, width, mostFolded))
	}
	b.WriteString("\n")
	for _, v := range s.Servers {
		serverNarrow(&b, v, width)
	}
	b.WriteString("\n" + fit("doorward status -v shows everything, including the sandboxes.", width) + "\n")
	return b.String()
}

// unrecorded says that acts are refused because they cannot be recorded, and what to do; empty:
// they can be.
func unrecorded(a admin.Audit) string {
	todo := "; run doorward audit verify, then restart the daemon"
	switch a.State {
	case audit.StateFull:
		todo = "; make room on the disk, and it goes on by itself"
	case audit.StateFailed:
	default:
		return ""
	}
	return "no record can be written, so acts that need one are refused" + todo + " (" + a.Reason + ")"
}

// notInForce says which changes of the configuration are not in force, and why; empty: none.
func notInForce(c admin.Configuration) string {
	switch {
	case c.NotReloaded != "":
		return "the last change of the configuration is not in force: " + c.NotReloaded
	case len(c.Restart) > 0:
		return "after a restart these changed sections of the configuration are in force: " + strings.Join(c.Restart, ", ")
	}
	return ""
}

// shortPath cuts an address at its beginning, because its end is more informative.
func shortPath(addr string, most int) string {
	if r := []rune(addr); len(r) > most && most > 1 {
		return "…" + string(r[len(r)-most+1:])
	}
	return addr
}

func serverNarrow(b *strings.Builder, v admin.Server, width int) {
	mode, _, _ := strings.Cut(v.Sandbox, " ")
	line := fmt.Sprintf("%-24s  %-7s  %-9s  %-7s  %2d  %s", fit(plaintext.Line(v.Name), 24), v.Kind, v.State, v.Era, v.Instances, mode)
	b.WriteString(fit(strings.TrimRight(line, " "), width) + "\n")
	say := func(most int, format string, a ...any) {
		b.WriteString(folded(fmt.Sprintf(format, a...), 4, width, most))
	}
	if v.Reason != "" {
		say(mostFolded, "%s", v.Reason)
	}
	for _, line := range v.Stderr {
		say(1, "standard error: %s", line)
	}
	for _, m := range v.Containment {
		if m.State == process.Unavailable {
			say(1, "not available: %s: %s", m.Name, m.Detail)
		}
	}
	for _, p := range v.Problems[:min(len(v.Problems), mostFolded)] {
		say(mostFolded, "document: %s", p)
	}
	if more := len(v.Problems) - mostFolded; more > 0 {
		say(1, "further problems with documents: %d", more)
	}
	for _, hint := range v.Unseen {
		say(mostFolded, "not seen: %s", hint)
	}
	for _, p := range v.Unmatched {
		say(1, "matches no tool: %q", p)
	}
	if n := len(v.Withheld); n > 0 {
		say(1, "withheld: %d; doorward trust %s shows them", n, v.Name)
	}
}

// fit cuts a text to most columns, with an ellipsis as the last. Without room it
// returns no text.
func fit(text string, most int) string {
	if most < 1 {
		return ""
	}
	if r := []rune(text); fits(r, most) < len(r) {
		return string(r[:fits(r, most-1)]) + "…"
	}
	return text
}
