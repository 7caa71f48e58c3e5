package console

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// actLog is an audit log that a test writes, with the time of a clock.
type actLog struct {
	*audit.Log
	t   *testing.T
	dir string
}

func newActLog(t *testing.T, c *clock) *actLog {
	t.Helper()
	dir := t.TempDir()
	log, err := audit.Open(dir, audit.Options{Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &actLog{log, t, dir}
}

// add appends n calls of a program, each with its outcome; the outcome "denied" is a refusal.
func (l *actLog) add(n int, program, outcome string) {
	l.t.Helper()
	who := principal.New("uid:1000", principal.Fact{Name: "exe", Value: "/usr/bin/" + program, Grade: principal.Observed})
	seq := l.State().Seq
	var lines []*audit.Record
	for range n {
		r := &audit.Record{Kind: audit.Decision, Source: "gate", Who: who, Action: "tools/call", Resource: "notes/tool", Decision: audit.Allow, Rule: "r"}
		lines = append(lines, r)
		if seq++; outcome == "denied" {
			r.Decision = audit.Deny
			continue
		}
		lines = append(lines, &audit.Record{Kind: audit.Outcome, Source: "gate", Who: who, Action: r.Action, Resource: r.Resource, Result: outcome, Ref: seq})
		seq++
	}
	for len(lines) > 0 {
		most := min(len(lines), 500)
		if _, err := l.AppendGroup(lines[:most]); err != nil {
			l.t.Fatal(err)
		}
		lines = lines[most:]
	}
}
