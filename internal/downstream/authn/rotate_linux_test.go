package authn

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

func mustRotate(t *testing.T, s *Store, name string, o Rotation) Rotated {
	t.Helper()
	r, err := s.Rotate(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBothTokensAreAcceptedDuringTheOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old, id := mustNew(t, w.store, "ci", 0, "server:docs")
	r := mustRotate(t, w.store, "ci", Rotation{Overlap: time.Hour})
	if r.Before.ID != id || r.Before.Expires.Sub(r.Created) != time.Hour || r.Scope != "server:docs" || !r.Expires.IsZero() || r.Secret == old {
		t.Errorf("%+v", r)
	}
	w.clock.advance(2 * time.Second)
	before, after := enforced(), enforced()
	for _, tc := range []struct {
		c     *Caller
		token string
	}{{before, old}, {after, r.Secret}} {
		if got, err := w.ask(tc.c, "Bearer "+tc.token); got != "token:ci" {
			t.Errorf("during the overlap: %q, %v", got, err)
		}
	}
	first, err := w.Authenticate(before, []string{"Bearer " + old})
	if err != nil || !w.Holds(first) {
		t.Fatalf("%v", err)
	}
	w.clock.advance(time.Hour)
	if _, err := w.ask(before, "Bearer "+old); !errors.Is(err, ErrUnauthenticated) || w.Holds(first) {
		t.Errorf("after the overlap: %v", err)
	}
	if got, _ := w.ask(after, "Bearer "+r.Secret); got != "token:ci" {
		t.Errorf("the successor: %q", got)
	}
}

func TestARotationDoesNotExtendTheTokenBefore(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	mustNew(t, s, "brief", time.Minute, "agent")
	own := mustRotate(t, s, "brief", Rotation{Overlap: 24 * time.Hour, Expires: time.Hour})
	if d := own.Before.Expires.Sub(own.Before.Created); d != time.Minute {
		t.Errorf("the one before lives %v instead of its own minute", d)
	}
	if own.Expires.Sub(own.Created) != time.Hour || own.Scope != "agent" {
		t.Errorf("%+v", own)
	}
	scope := "admin"
	if r := mustRotate(t, s, "brief", Rotation{Scope: &scope}); r.Scope != "admin" || r.Before.Scope != "agent" || r.Before.Expires.After(r.Created) {
		t.Errorf("%+v", r)
	}
	scope = ""
	if r := mustRotate(t, s, "brief", Rotation{Scope: &scope}); r.Scope != "" {
		t.Errorf("%+v", r)
	}
	bad := "everything"
	for _, tc := range []struct {
		name string
		o    Rotation
		want error
	}{
		{"brief", Rotation{Scope: &bad}, ErrScope},
		{"brief", Rotation{Expires: -1}, ErrExpiry},
		{"brief", Rotation{Overlap: -1}, ErrOverlap},
		{"nobody", Rotation{}, ErrNoPredecessor},
		{"env", Rotation{}, ErrNoPredecessor},
		{"", Rotation{}, ErrNoPredecessor},
	} {
		if _, err := s.Rotate(tc.name, tc.o); !errors.Is(err, tc.want) {
			t.Errorf("%q %+v: %v", tc.name, tc.o, err)
		}
	}
}

// Several tokens of one name are accepted while their overlaps last. Revoking the name revokes
// all of them, revoking an id one.
func TestManyTokensOfOneName(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	_, first := mustNew(t, s, "ci", 0, "")
	second := mustRotate(t, s, "ci", Rotation{Overlap: 2 * time.Hour})
	third := mustRotate(t, s, "ci", Rotation{Overlap: time.Hour})
	if _, _, err := s.NewToken("ci", 0, ""); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	// The current one leaked: it is revoked by its id and replaced by name.
	if got, err := s.Revoke(third.ID); err != nil || len(got) != 1 {
		t.Fatalf("%+v %v", got, err)
	}
	if _, _, err := s.NewToken("ci", 0, ""); !errors.Is(err, ErrExists) {
		t.Errorf("with two still accepted: %v", err)
	}
	fourth := mustRotate(t, s, "ci", Rotation{Overlap: 24 * time.Hour})
	if fourth.Before.ID != second.ID || fourth.Before.Expires.Sub(second.Created) > 2*time.Hour {
		t.Errorf("%+v", fourth)
	}
	got, err := s.Revoke("ci")
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v %v", got, err)
	}
	for i, id := range []string{first, second.ID, fourth.ID} {
		if got[i].ID != id || got[i].Revoked.IsZero() {
			t.Errorf("%+v", got[i])
		}
	}
	mustNew(t, s, "ci", 0, "")
	if list, err := s.List(); err != nil || len(list) != 5 {
		t.Errorf("%+v %v", list, err)
	}
}

// The name of an expired token is free for a new one.
func TestAnExpiredTokenDoesNotKeepItsName(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	mustNew(t, s, "ci", time.Nanosecond, "")
	doortest.Until(t, 20*time.Second, "the token has expired", func() bool {
		list, err := s.List()
		return err == nil && !list[0].live(time.Now())
	})
	if _, err := s.Rotate("ci", Rotation{}); !errors.Is(err, ErrNoPredecessor) {
		t.Errorf("%v", err)
	}
	mustNew(t, s, "ci", 0, "")
	if list, err := s.List(); err != nil || len(list) != 2 {
		t.Errorf("%+v %v", list, err)
	}
}

// A store with two current tokens of a name, or with a malformed rotated token, is refused. A
// store that was written before any rotation is read.
func TestTheFileHoldsOneCurrentTokenOfAName(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	path := filepath.Join(s.dir, storeFile)
	mustNew(t, s, "ci", 0, "")
	before, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(before), "succeeded") {
		t.Fatalf("%v %s", err, before)
	}
	mustRotate(t, s, "ci", Rotation{Overlap: time.Hour})
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseStore(good); err != nil {
		t.Fatal(err)
	}
	without := func(member string) []byte {
		lines := slices.DeleteFunc(strings.Split(string(good), "\n"), func(l string) bool { return strings.Contains(l, `"`+member+`"`) })
		return []byte(strings.Join(lines, "\n"))
	}
	for name, bad := range map[string][]byte{
		"two current":       without("succeeded"),
		"no end":            without("expires"),
		"not a time":        bytes.Replace(good, []byte(`"succeeded": "2`), []byte(`"succeeded": "x`), 1),
		"an unknown member": bytes.Replace(good, []byte(`"succeeded"`), []byte(`"replaced"`), 1),
	} {
		if bytes.Equal(bad, good) {
			t.Fatalf("%s: the damage did nothing", name)
		}
		if _, err := parseStore(bad); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}

func TestAStoreThatIsFullStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	mustNew(t, s, "ci", 0, "")
	path := filepath.Join(s.dir, storeFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	err = s.change(func(records []record) ([]record, error) {
		_, large := newRecord("n", 0, strings.Repeat("server:a,", maxStore/90)+"agent")
		for range 10 {
			records = append(records, large)
		}
		return records, nil
	})
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("%v", err)
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, good) {
		t.Error("the file was changed")
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mustNew(t, w.store, "ci", 0, "server:docs")
	mustNew(t, w.store, "brief", time.Minute, "agent")
	_, gone := mustNew(t, w.store, "gone", 0, "")
	if _, err := w.store.Revoke(gone); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(2 * time.Second)
	for name, want := range map[string]string{
		"token:ci":    `server:docs`,
		"token:brief": `agent`,
		"token:env":   ``,
		"token:file":  ``,
	} {
		p := w.Named(name)
		scope, _ := p.Fact(factScope)
		id, _ := p.Fact(factToken)
		if p.Name() != name || scope.Value != want || p.Local() || id.Value == "" || id.Grade.String() != "verified" {
			t.Errorf("%s: %s %s local %v", name, p.Name(), p.FactsJSON(), p.Local())
		}
	}
	own := w.Named("uid:" + number(factUID, me(), 0).Value)
	if uid, _ := own.Fact(factUID); !own.Local() || uid.Grade.String() != "attested" {
		t.Errorf("%s %v", own.FactsJSON(), own.Local())
	}
	for _, name := range []string{"loopback:uid=" + number(factUID, me(), 0).Value, "loopback:unknown"} {
		if p := w.Named(name); p.Name() != name || !p.Local() {
			t.Errorf("%s: %v", name, p)
		}
	}
	for _, name := range []string{"", "token:nobody", "token:gone", "uid:12345678", "loopback:uid=12345678", "oauth:https://a.example#b", "spawn:x", "nonsense"} {
		if p := w.Named(name); p != nil {
			t.Errorf("%s is %s", name, p.Name())
		}
	}
	scope := "admin"
	mustRotate(t, w.store, "ci", Rotation{Overlap: time.Hour, Scope: &scope})
	w.clock.advance(2 * time.Second)
	if s, _ := w.Named("token:ci").Fact(factScope); s.Value != "admin" {
		t.Errorf("the scope after a rotation is %q", s.Value)
	}
	w.clock.advance(2 * time.Minute)
	if p := w.Named("token:brief"); p != nil {
		t.Errorf("an expired one is %s", p.Name())
	}
}

// A new token is accepted at once, because the store is read when a token is unknown. Such
// reads are limited in rate.
func TestANewTokenIsAcceptedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.clock.advance(lookSooner)
	tok, _ := mustNew(t, w.store, "ci", 0, "")
	if got, err := w.ask(enforced(), "Bearer "+tok); got != "token:ci" {
		t.Errorf("at once: %v", err)
	}
	next, _ := mustNew(t, w.store, "next", 0, "")
	if _, err := w.ask(enforced(), "Bearer "+next); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("reads of the store are not limited: %v", err)
	}
	w.clock.advance(lookSooner)
	if got, err := w.ask(enforced(), "Bearer "+next); got != "token:next" {
		t.Errorf("soon: %v", err)
	}
	if said := w.heard(); said != "" {
		t.Errorf("the operator heard %q", said)
	}
}
