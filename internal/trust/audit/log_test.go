package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/doortest"
)

func fixedClock() time.Time {
	return time.Date(2026, 3, 4, 5, 6, 7, 8_009_999, time.FixedZone("elsewhere", 3600))
}

func TestLineHasTheContractsMembersInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{Now: fixedClock})
	mustAppend(t, l, &audit.Record{
		Kind: audit.Outcome, Source: "gate", Session: "5f1c", Action: "tools/call", Resource: "srv/tool",
		Who:      principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested}),
		Decision: audit.Deny, Rule: "r1", Result: "error", Bytes: 12, Count: 3, Reason: "constant", Ref: 1,
	})
	mustAppend(t, l, &audit.Record{Kind: audit.Event, Source: "listen"})
	got := lines(t, dir)
	cut := func(line []byte) string {
		before, _, _ := strings.Cut(string(line), `,"prev":`)
		return before
	}
	const full = `{"seq":2,"time":"2026-03-04T04:06:07.008009Z","kind":"outcome","source":"gate","principal":"uid:1000",` +
		`"facts":[{"name":"uid","value":"1000","grade":"attested"}],"session":"5f1c","action":"tools/call","resource":"srv/tool",` +
		`"decision":"deny","rule":"r1","result":"error","bytes":12,"count":3,"reason":"constant","ref":1`
	if cut(got[1]) != full {
		t.Errorf("got\n%s\nwant\n%s", cut(got[1]), full)
	}
	const bare = `{"seq":3,"time":"2026-03-04T04:06:07.008009Z","kind":"event","source":"listen"`
	if cut(got[2]) != bare {
		t.Errorf("got\n%s\nwant\n%s", cut(got[2]), bare)
	}
}

// A third party can check the chain as the package comment says, without code of the
// package.
func TestChainCanBeCheckedByHand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{SegmentBytes: 2000})
	for range 20 {
		mustAppend(t, l, decision(`a resource that contains ,"hash": itself`))
	}
	mustClose(t, l)
	if n := len(segmentNames(t, dir)); n < 3 {
		t.Fatalf("only %d segments", n)
	}
	prev := strings.Repeat("0", 64)
	for i, line := range lines(t, dir) {
		before, _, ok := bytes.Cut(line, []byte(`,"hash":`))
		sum := sha256.Sum256(before)
		e := parse(t, line)
		if !ok || e.Seq != uint64(i)+1 || e.Prev != prev || e.Hash != hex.EncodeToString(sum[:]) {
			t.Fatalf("line %d does not continue the chain: %s", i+1, line)
		}
		prev = e.Hash
	}
}

func TestStartAndStopAreEvents(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	for range 2 {
		l := open(t, dir, audit.Options{Key: key})
		mustAppend(t, l, decision("a/b"))
		mustClose(t, l)
	}
	es := entries(t, dir)
	const want = "audit.start tools/call audit.stop audit.start tools/call audit.stop"
	if actions(es) != want {
		t.Fatalf("got %s, want %s", actions(es), want)
	}
	for _, e := range []entry{es[0], es[2], es[3], es[5]} {
		if e.Kind != "event" || e.Source != "audit" || e.Reason != "" {
			t.Errorf("%+v", e)
		}
	}
	mustVerify(t, dir, key, 6)
}

func TestAfterCloseNothingIsRecorded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	mustClose(t, l)
	mustClose(t, l)
	l.Later(decision("late"))
	if seq, err := l.Append(decision("late")); seq != 0 || !errors.Is(err, audit.ErrUnavailable) {
		t.Errorf("Append after Close: %d, %v", seq, err)
	}
	if got := actions(entries(t, dir)); got != "audit.start audit.stop" {
		t.Errorf("got %s", got)
	}
}

func TestAppendCanBeReadWhenItReturns(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{false, true} {
		dir := t.TempDir()
		l := open(t, dir, audit.Options{Always: always})
		for range 20 {
			seq := mustAppend(t, l, decision("a/b"))
			if all := lines(t, dir); uint64(len(all)) != seq || parse(t, all[seq-1]).Resource != "a/b" {
				t.Fatalf("always=%v: record %d is not in the file, which has %d", always, seq, len(all))
			}
		}
	}
}

func TestLaterKeepsItsPlaceInTheOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	l.Later(decision("1"))
	l.Later(decision("2"))
	if seq := mustAppend(t, l, decision("3")); seq != 4 {
		t.Errorf("Append gave %d, want 4: start and two Later come before it", seq)
	}
	es := entries(t, dir)
	if len(es) != 4 || es[1].Resource != "1" || es[2].Resource != "2" || es[3].Resource != "3" {
		t.Errorf("the file has %+v", es)
	}
}

func TestLaterArrivesByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	for n := 2; n < 6; n++ { // the keeper may be asleep each time
		l.Later(decision("a/b"))
		doortest.Until(t, 30*time.Second, "the record is in the file", func() bool { return len(lines(t, dir)) == n })
	}
}

func TestManyLaterAreWrittenOnTheWay(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	l := open(t, dir, audit.Options{Key: key})
	for range 20_000 {
		l.Later(decision("a/b"))
	}
	mustClose(t, l)
	mustVerify(t, dir, key, 20_002)
}

func TestWhatCallersSendIsEscapedAndCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	r := decision("x\n{\"seq\":1}\x1b[2J\u202e" + strings.Repeat("z", 10_000))
	r.Action = strings.Repeat("\x00", 10_000)
	r.Session, r.Rule, r.Result, r.Reason, r.Source, r.Kind = r.Action, r.Action, r.Action, r.Action, r.Action, r.Action
	r.Bytes, r.Count, r.Ref = math.MinInt64, math.MinInt64, math.MaxUint64
	var facts []principal.Fact
	for range 1000 {
		facts = append(facts, principal.Fact{Name: "group", Value: r.Action, Grade: principal.Attested})
	}
	r.Who = principal.New("oauth:https://i.example#"+strings.Repeat("s", 255), facts...)
	mustAppend(t, l, r)
	all := lines(t, dir)
	if len(all) != 2 {
		t.Fatalf("%d lines", len(all))
	}
	e := parse(t, all[1])
	if !strings.HasPrefix(e.Resource, "x\n{\"seq\":1}\x1b[2J\u202ezzz") || !strings.HasSuffix(e.Resource, "zzz…[cut]") || len(e.Resource) > 530 {
		t.Errorf("resource is %q", e.Resource)
	}
	if len(e.Facts) != 1 || e.Facts[0].Grade != "unavailable" {
		t.Errorf("facts are %v", e.Facts)
	}
	if len(all[1]) > audit.MaxLine || bytes.ContainsAny(all[1], "\x1b\x00\u202e") {
		t.Errorf("the line has %d bytes: %q", len(all[1]), all[1])
	}
	if r, err := auditlog.Verify(dir, nil); err != nil || !r.OK {
		t.Errorf("%+v %v", r, err)
	}
}

func TestSegmentsAreClosedBeforeTheyGrowTooLarge(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	const limit = 4000
	l := open(t, dir, audit.Options{SegmentBytes: limit, Key: key})
	for range 200 {
		mustAppend(t, l, decision("a/b"))
	}
	mustClose(t, l)
	names := segmentNames(t, dir)
	for _, name := range names {
		if n := len(readFile(t, filepath.Join(dir, name))); n == 0 || n > limit {
			t.Errorf("%s has %d bytes", name, n)
		}
	}
	if r := mustVerify(t, dir, key, 202); r.Checkpoints != len(names)+1 {
		t.Errorf("%d checkpoints for %d segments: one before the first record and one for each end is right", r.Checkpoints, len(names))
	}
	l = open(t, dir, audit.Options{SegmentBytes: limit, Key: key})
	mustAppend(t, l, decision("after a restart"))
	mustClose(t, l)
	mustVerify(t, dir, key, 205)
}

func TestCheckpointsComeWhileRecordsCome(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	l := open(t, dir, audit.Options{Key: key, CheckpointEvery: 60 * time.Millisecond})
	covered := func(n uint64) func() bool {
		return func() bool { r := verify(t, dir, key); return r.OK && r.Covered >= n }
	}
	for range 3 {
		doortest.Until(t, 30*time.Second, "a checkpoint covers the record", covered(mustAppend(t, l, decision("a/b"))))
	}
	before := len(readFile(t, filepath.Join(dir, "checkpoints")))
	mustClose(t, l)
	if after := len(readFile(t, filepath.Join(dir, "checkpoints"))); after <= before {
		t.Error("Close wrote no checkpoint")
	}
	if r := mustVerify(t, dir, key, 5); r.Covered != 5 || !r.Signatures || r.CoveredAt == "" {
		t.Errorf("%+v", r)
	}
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "here")
	l := open(t, dir, audit.Options{Key: newKey(t)})
	mustClose(t, l)
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v", fi.Mode(), err)
	}
	for _, name := range []string{"00000001.jsonl", "checkpoints", "lock"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
}

func TestASymlinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"00000001.jsonl", "lock", "checkpoints"} {
		dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
		writeFile(t, target, nil)
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if l, err := audit.Open(dir, audit.Options{Key: newKey(t)}); err == nil {
			l.Close()
			t.Errorf("%s: a symbolic link was opened", name)
		}
		if b := readFile(t, target); len(b) > 0 {
			t.Errorf("%s: written through the link", name)
		}
	}
}

// TestDetailsAreNamedFields: the details of a record are written in their order, each
// name once, escaped, cut, and bounded together.
func TestDetailsAreNamedFields(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	mustAppend(t, l, &audit.Record{Kind: audit.Decision, Source: "agent_msg", Reason: "r", Ref: 7,
		Detail: []audit.Field{{Name: "peer", Value: `a"b` + "\n"}, {Name: "epoch", Value: "2"}, {Name: "peer", Value: "again"}}})
	many := make([]audit.Field, 100)
	for i := range many {
		many[i] = audit.Field{Name: "x" + strconv.Itoa(i), Value: strings.Repeat("v", 600)}
	}
	mustAppend(t, l, &audit.Record{Kind: audit.Decision, Source: "agent_msg", Detail: many})
	got := lines(t, dir)
	if want := `,"reason":"r","detail":{"peer":"a\"b\n","epoch":"2"},"ref":7,"prev":`; !strings.Contains(string(got[1]), want) {
		t.Errorf("%s lacks %s", got[1], want)
	}
	if !strings.Contains(string(got[2]), `…[cut]`) || !strings.Contains(string(got[2]), `"left_out":"`) || len(got[2]) > audit.MaxLine {
		t.Errorf("%d bytes: %.200s", len(got[2]), got[2])
	}
	mustClose(t, l)
	if r, err := auditlog.Verify(dir, nil); err != nil || !r.OK {
		t.Errorf("%+v %v", r, err)
	}
}

// TestAGroupIsRecordedTogether: a group has consecutive numbers while others append,
// and a closed log records none of it.
func TestAGroupIsRecordedTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for range 20 {
				name := string(rune('a' + g))
				first, err := l.AppendGroup([]*audit.Record{decision(name + "1"), decision(name + "2"), decision(name + "3")})
				if err != nil || first == 0 {
					t.Errorf("%d %v", first, err)
				}
			}
		})
	}
	wg.Wait()
	if first, err := l.AppendGroup(nil); first != 0 || err != nil {
		t.Errorf("nothing: %d %v", first, err)
	}
	all := lines(t, dir)[1:]
	if len(all) != 16*20*3 {
		t.Fatalf("%d records", len(all))
	}
	for i := 0; i < len(all); i += 3 {
		name, _, _ := strings.Cut(string(all[i][bytes.Index(all[i], []byte(`"resource":"`))+12:]), `1"`)
		for k := range 3 {
			if want := `"resource":"` + name + string(rune('1'+k)) + `"`; !bytes.Contains(all[i+k], []byte(want)) {
				t.Fatalf("line %d is not %s: %s", i+k, want, all[i+k])
			}
		}
	}
	mustClose(t, l)
	if _, err := l.AppendGroup([]*audit.Record{decision("late")}); !errors.Is(err, audit.ErrUnavailable) {
		t.Errorf("after the end: %v", err)
	}
}
