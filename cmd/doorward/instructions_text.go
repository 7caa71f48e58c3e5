package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
)

// short returns the beginning of a version, for people. Commands accept it in place of the
// version.
func short(version string) string {
	const digits = 12
	if len(version) > digits {
		version = version[:digits]
	}
	return oneWord(version)
}

func versionsText(versions []deliver.VersionInfo) string {
	rows := [][]string{{"NAME", "VERSION", "CLASS", "TIER", "LABELS", "STATE", "AUDIENCE", "FIRST SEEN", "FILE"}}
	for _, v := range versions {
		audience := "everybody"
		if v.Variant != "" {
			audience = oneWord(v.Variant)
		}
		rows = append(rows, []string{oneWord(v.Name), short(v.Version), oneWord(v.Class), oneWord(v.Tier), oneWord(strings.Join(v.Labels, ",")),
			stateOf(v), audience, oneWord(v.FirstSeen), oneWord(v.File)})
	}
	return table(rows...)
}

// stateOf returns the state of a version as one word.
func stateOf(v deliver.VersionInfo) string {
	switch {
	case v.Revoked != "":
		return "revoked"
	case v.Waiting:
		return "waits"
	case v.Served:
		return "served"
	}
	return oneWord(v.State)
}

func readsText(reads []deliver.Access) string {
	rows := [][]string{{"LAST", "TIMES", "BYTES", "SESSION", "PRINCIPAL", "DOCUMENT", "REVISION"}}
	for _, r := range reads {
		rows = append(rows, []string{oneWord(r.Last), fmt.Sprint(r.Count), fmt.Sprint(r.Bytes), oneWord(r.Session), oneWord(r.Principal),
			oneWord(r.Template), short(r.Revision)})
	}
	return table(rows...)
}

func leakText(l *deliver.Access) string {
	return fmt.Sprintf("session %s of %s read %s, revision %s\n", oneWord(l.Session), oneWord(l.Principal), oneWord(l.Template), short(l.Revision))
}

// actText returns the text about the result of an act.
func actText(a *library.Act) string {
	if len(a.Moves) == 0 {
		return fmt.Sprintf("%s: %s changed nothing\n", oneWord(a.Name), oneWord(a.Op))
	}
	var b strings.Builder
	for _, m := range a.Moves {
		name := oneWord(a.Name)
		if m.Variant != "" {
			name += " for audience " + oneWord(m.Variant)
		}
		fmt.Fprintf(&b, "%s: %s %s -> %s\n", name, oneWord(cmp.Or(a.Label, a.Op)), short(m.From), short(m.To))
	}
	return b.String()
}

// mistakeText returns one problem of a document on one line.
func mistakeText(m deliver.Mistake) string {
	text := m.Text
	if m.Warning {
		text = "warning: " + text
	}
	return plaintext.Line(fmt.Sprintf("%s:%d: %s", m.File, m.Line, text))
}
