package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/history"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// fourActs returns the records of four calls, two at a time under way, of which one is
// denied. begin is the number of the first.
func fourActs(begin uint64) []*audit.Record {
	who := principal.New("uid:1000", principal.Fact{Name: "exe", Value: "/usr/bin/codex", Grade: principal.Observed})
	call := func(tool, decision string) *audit.Record {
		return &audit.Record{Kind: audit.Decision, Source: "gate", Who: who, Action: "tools/call", Resource: "notes/" + tool, Decision: decision, Rule: "r"}
	}
	end := func(of uint64, result string) *audit.Record {
		return &audit.Record{Kind: audit.Outcome, Source: "gate", Who: who, Ref: begin + of, Result: result, Bytes: 7}
	}
	return []*audit.Record{call("a", audit.Allow), call("b", audit.Deny), call("c", audit.Allow), end(2, "ok"), call("d", audit.Allow), end(0, "error"), end(4, "ok")}
}

// openLog makes an audit log.
func openLog(t *testing.T) (dir string, log *audit.Log) {
	t.Helper()
	dir = t.TempDir()
	log, err := audit.Open(dir, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() }) // the test may have closed it
	return dir, log
}

// TestFollowingPrintsTheEndOfEachAct: each act is printed once with its end, wherever the
// record stands when it is first read, also an act that was first printed as under way.
func TestFollowingPrintsTheEndOfEachAct(t *testing.T) {
	t.Parallel()
	for before := range 3 * 8 {
		f, want := history.Filter{}, "map[a:error b:denied c:ok d:ok]"
		switch before / 8 {
		case 1:
			f.Tool, want = "d", "map[d:ok]"
		case 2:
			f.Outcome, want = "denied", "map[b:denied]"
		}
		before %= 8
		t.Run(fmt.Sprint(f.Tool, f.Outcome, before), func(t *testing.T) {
			t.Parallel()
			dir, log := openLog(t)
			acts := fourActs(log.State().Seq + 1)
			write(t, log, acts[:before])
			found, err := history.Search(t.Context(), dir, f, 0, 50)
			if err != nil {
				t.Fatal(err)
			}
			write(t, log, acts[before:])
			ends := map[string]string{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			show := func(e history.Entry) error {
				if e.Outcome != "open" {
					ends[e.Name] += e.Outcome
				}
				if fmt.Sprint(ends) == want {
					cancel()
				}
				return nil
			}
			for _, e := range found.Entries {
				_ = show(e) // it does not fail
			}
			err = goOn(ctx, dir, f, found, show)
			if got := fmt.Sprint(ends); got != want {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

func write(t *testing.T, log *audit.Log, records []*audit.Record) {
	t.Helper()
	for _, r := range records {
		if _, err := log.Append(r); err != nil {
			t.Fatal(err)
		}
	}
}
