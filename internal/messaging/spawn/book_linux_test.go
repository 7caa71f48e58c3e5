package spawn

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/test/doortest"
)

// realBook is a mail.Book in a database of its own.
func realBook(t *testing.T) *mail.Book {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Migrations: mail.Migrations(), Record: func([]any) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	b, err := mail.Open(t.Context(), db, mail.Options{Node: "here", Upkeep: said[mail.Upkeep]})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// With a real book the parent reads the start, the result and the end of its agent. The book
// bounds the agents that an agent starts, and they end with it.
func TestTheParentReadsTheEndOfItsAgent(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	b := realBook(t)
	m := New(Options{Runner: s.runner, Book: b, Note: said[mail.Spawn], StateDir: s.dir + "/state", RuntimeDir: s.dir + "/run", Socket: s.dir + "/run/doorward.sock"})
	m.SetLaunchers(map[string]*Launcher{"helper": s.helper(process.Contain)})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		m.Close(ctx)
	}()
	ctx := t.Context()
	boss := mail.Owner{Principal: mail.Qualify("here", s.parent.Name()), Session: "s:boss", Node: "here", Grade: "attested"}
	if _, err := b.Register(ctx, boss, mail.Registration{Name: "boss", Namespace: "work"}, nil, said); err != nil {
		t.Fatal(err)
	}
	start := func(o mail.Owner, who *principal.Principal, r Request) (*mail.Spawn, error) {
		r.Launcher = "helper"
		d, err := m.Check(who, r)
		if err != nil {
			return nil, err
		}
		row, err := b.BeginSpawn(ctx, o, d, said)
		if err != nil {
			return nil, err
		}
		return row, m.Start(ctx, row, who, r)
	}
	over := func(id string) *mail.Spawn {
		t.Helper()
		var row *mail.Spawn
		doortest.Until(t, 20*time.Second, "the book says that "+id+" has ended", func() bool {
			var err error
			if row, err = b.SpawnOf(ctx, boss, id); err != nil {
				t.Fatal(err)
			}
			return row.State != mail.Running && row.State != mail.Starting
		})
		return row
	}

	row, err := start(boss, s.parent, Request{Name: "kid", Prompt: "say the answer", Result: true})
	if err != nil {
		t.Fatal(err)
	}
	if row.Name != "boss/kid" || row.MaxChildren != 2 {
		t.Errorf("%+v", row)
	}
	if got := over(row.ID); got.State != mail.Exited || got.ExitCode == nil || *got.ExitCode != 0 || got.ResultMessage == "" {
		t.Errorf("%+v", got)
	}
	batch, err := b.Inbox(ctx, boss, mail.Fetch{Max: 10, MaxBytes: 1 << 16}, said)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, msg := range batch.Messages {
		kinds[msg.Kind]++
		if msg.Kind == "result" && !strings.Contains(msg.Body, "the answer") {
			t.Errorf("the result is %q", msg.Body)
		}
	}
	if kinds["event"] < 2 || kinds["result"] != 1 {
		t.Errorf("the parent reads %v", kinds)
	}

	// An agent starts another one within its own budget.
	first, err := start(boss, s.parent, Request{Name: "first", Prompt: "wait 1000s"})
	if err != nil {
		t.Fatal(err)
	}
	me := mail.Owner{Principal: mail.Qualify("here", principal.Spawn(first.ID)), Session: "i:first", Node: "here", Grade: "verified", Spawn: first.ID}
	if _, err := b.Register(ctx, me, mail.Registration{Name: "first"}, nil, said); err != nil {
		t.Fatal(err)
	}
	who := scoped(principal.Spawn(first.ID), "agent,server:notes").WithParent(s.parent)
	none := 0
	second, err := start(me, who, Request{Name: "second", Prompt: "wait 1000s", MaxChildren: &none})
	if err != nil || second.Depth != 2 || second.Name != "boss/first/second" {
		t.Fatalf("%+v, %v", second, err)
	}
	you := mail.Owner{Principal: mail.Qualify("here", principal.Spawn(second.ID)), Session: "i:second", Node: "here", Grade: "verified", Spawn: second.ID}
	if _, err := b.Register(ctx, you, mail.Registration{Name: "second"}, nil, said); err != nil {
		t.Fatal(err)
	}
	deeper := scoped(principal.Spawn(second.ID), "agent").WithParent(who)
	if _, err := start(you, deeper, Request{Prompt: "say never"}); code(err) != mail.Budget {
		t.Errorf("beyond its children: %v", err)
	}
	// The second agent ends with the first.
	if err := m.Stop(first.ID, 0); err != nil {
		t.Fatal(err)
	}
	if got := over(first.ID); got.State != mail.Killed {
		t.Errorf("%+v", got)
	}
	doortest.Until(t, 10*time.Second, "nothing is open", func() bool {
		open, err := b.OpenSpawns(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(open) == 0
	})
	for _, id := range []string{first.ID, second.ID} {
		if m.Find(id) != nil {
			t.Errorf("%s is still found", id)
		}
	}
	if _, err := start(me, who, Request{Prompt: "say never"}); err == nil {
		t.Error("an agent that has ended starts others")
	}
}

// Recover ends the spawns that a killed daemon left open, once, and the parent reads it.
func TestRecoverEndsSpawnsThatWereLeftOpen(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	b := realBook(t)
	boss := mail.Owner{Principal: mail.Qualify("here", "uid:0"), Session: "s:boss", Node: "here", Grade: "attested"}
	if _, err := b.Register(t.Context(), boss, mail.Registration{Name: "boss", Namespace: "work"}, nil, said); err != nil {
		t.Fatal(err)
	}
	row, err := b.BeginSpawn(t.Context(), boss, mail.SpawnDraft{Launcher: "helper", Name: "kid", MaxSeconds: 60, WantResult: true}, said)
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{Runner: s.runner, Book: b, Note: said[mail.Spawn], StateDir: s.dir + "/state", RuntimeDir: s.dir + "/run", Socket: s.dir + "/run/doorward.sock"})
	for range 2 {
		if err := m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.SpawnOf(t.Context(), boss, row.ID)
	if err != nil || got.State != mail.Killed {
		t.Errorf("%+v, %v", got, err)
	}
	batch, err := b.Inbox(t.Context(), boss, mail.Fetch{Max: 10, MaxBytes: 1 << 16}, said)
	if err != nil || len(batch.Messages) == 0 || !strings.Contains(batch.Messages[len(batch.Messages)-1].Body, "killed") {
		t.Errorf("the parent reads %+v, %v", batch, err)
	}
}

// said is the record of an act in tests that do not check records.
func said[T any](*T) any { return "an act" }
