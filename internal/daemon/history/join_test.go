package history

import (
	"context"
	"errors"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

var errEnough = errors.New("enough")

// Join gives an act once, with its outcome, when it has ended or was refused.
func TestJoin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, err := audit.Open(dir, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who := principal.New("uid:1000", principal.Fact{Name: "exe", Value: "/usr/bin/codex", Grade: principal.Observed})
	decision := func(tool, decision string) *audit.Record {
		return &audit.Record{Kind: audit.Decision, Source: "gate", Who: who, Action: "tools/call", Resource: "notes/" + tool, Decision: decision, Rule: "r"}
	}
	first, err := log.AppendGroup([]*audit.Record{decision("a", audit.Allow), decision("b", audit.Deny), decision("c", audit.Allow), decision("other", audit.Allow)})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []uint64{first + 2, first, first + 3} {
		if _, err := log.Append(&audit.Record{Kind: audit.Outcome, Source: "gate", Who: who, Ref: ref, Result: "ok", Bytes: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var got string
	j := NewJoin(Filter{Server: "notes"})
	n := 0
	err = auditlog.Follow(context.Background(), dir, first, func(line []byte) error {
		if e, ok := j.Take(line); ok {
			got += e.Name + ":" + e.Outcome + " "
		}
		if n++; n == 7 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || got != "b:denied c:ok a:ok other:ok " {
		t.Errorf("%q, %v", got, err)
	}
}
