package audit

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/internal/trust/principal"
)

// TestALineIsShorterThanMaxLine: with its newline it is at most that long.
func TestALineIsShorterThanMaxLine(t *testing.T) {
	t.Parallel()
	good := string(bytes.TrimSuffix(makeLine(act(), time.Unix(0, 0), genesis()), []byte("\n")))
	of := func(n int) []byte {
		return []byte(strings.Replace(good, `,"prev"`, `,"x":"`+strings.Repeat("a", n-len(good)-len(`,"x":""`))+`","prev"`, 1))
	}
	if text := of(MaxLine - 1); len(text) != MaxLine-1 {
		t.Fatalf("the test makes %d bytes", len(text))
	} else if _, ok := ParseLine(text); !ok {
		t.Error("a line of MaxLine bytes with its newline is refused")
	}
	if _, ok := ParseLine(of(MaxLine)); ok {
		t.Error("a longer line passed")
	}
}

// TestLineRestIsWhatALineAddsToItsBody: at most, which is with the longest number.
func TestLineRestIsWhatALineAddsToItsBody(t *testing.T) {
	t.Parallel()
	b, last := newBody(act(), time.Unix(0, 0)), genesis()
	last.seq = math.MaxUint64 - 1
	if n := len(appendLine(nil, b, &last, new(callers))) - len(b.text); n != lineRest {
		t.Errorf("%d bytes, lineRest says %d", n, lineRest)
	}
}

// TestFactsAreWholeOrReplaced: facts of MaxFacts bytes are recorded, longer ones are not.
func TestFactsAreWholeOrReplaced(t *testing.T) {
	t.Parallel()
	of := func(n int) *principal.Principal {
		var facts []principal.Fact
		with := func(value int) *principal.Principal {
			last := principal.Fact{Name: "f", Value: strings.Repeat("a", value), Grade: principal.Attested}
			return principal.New("uid:1", append(facts, last)...)
		}
		for len(with(0).FactsJSON())+principal.MaxFactText < n {
			facts = append(facts, principal.Fact{Name: "f", Value: strings.Repeat("a", 300), Grade: principal.Attested})
		}
		return with(n - len(with(0).FactsJSON()))
	}
	for n, whole := range map[int]bool{MaxFacts: true, MaxFacts + 1: false} {
		who := of(n)
		if len(who.FactsJSON()) != n {
			t.Fatalf("the test makes %d bytes", len(who.FactsJSON()))
		}
		if got := appendFacts(nil, who); bytes.Contains(got, who.FactsJSON()) != whole || bytes.Contains(got, []byte(tooManyFacts)) == whole {
			t.Errorf("%d bytes: %.200s", n, got)
		}
	}
}

// TestDetailsBehindTheLimitAreCounted: a field is written while those before it have at most
// maxDetail bytes.
func TestDetailsBehindTheLimitAreCounted(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{maxDetail: `,"y":"1","left_out":"1"}`, maxDetail + 1: `,"left_out":"2"}`} {
		var fields []Field
		size := 0
		for i := 0; n-size > 0; i++ {
			f := Field{Name: fmt.Sprintf("f%02d", i)}
			bare := len(`"f00":""`) + min(i, 1) // the comma
			f.Value = strings.Repeat("a", min(400, n-size-bare))
			if rest := n - size - bare - len(f.Value); rest > 0 && rest < 10 {
				f.Value = f.Value[10:]
			}
			size += bare + len(f.Value)
			fields = append(fields, f)
		}
		if size != n {
			t.Fatalf("the test makes %d bytes of %d", size, n)
		}
		got := string(appendDetail(nil, append(fields, Field{"y", "1"}, Field{"z", "2"})))
		if !strings.HasSuffix(got, want) {
			t.Errorf("%d bytes: …%s, want %s", n, got[len(got)-60:], want)
		}
	}
}

// caller returns a body whose members of the caller have n bytes, and are different for each i.
func caller(i, n int) body {
	who := fmt.Sprintf(`,"session":"%d`, i)
	who += strings.Repeat("a", n-len(who)-1) + `"`
	return body{[]byte(`,"kind":"k"` + who + `,"rest":1`), len(`,"kind":"k"`), len(`,"kind":"k"`) + n}
}

// TestCallersHaveTheirLimits: a short caller is written again, and when too many callers or
// bytes are remembered, all are forgotten.
func TestCallersHaveTheirLimits(t *testing.T) {
	t.Parallel()
	var c callers
	refers := func(b body, seq uint64) bool {
		return bytes.Contains(c.appendReferring(nil, b, seq), []byte(AsMember))
	}
	for n, want := range map[int]bool{ShortCaller: false, ShortCaller + 1: true} {
		refers(caller(0, n), 1)
		if got := refers(caller(0, n), 2); got != want {
			t.Errorf("a caller of %d bytes is referred to: %v", n, got)
		}
	}
	c.reset()
	for i := range CallersKept {
		refers(caller(i, 40), uint64(i)+1)
	}
	if c.bytes != 40*CallersKept || !refers(caller(0, 40), 5000) || !refers(caller(CallersKept-1, 40), 5000) {
		t.Errorf("%d callers are not all known: %d bytes", CallersKept, c.bytes)
	}
	if refers(caller(CallersKept, 40), 5000); refers(caller(0, 40), 5001) || len(c.known) != 2 || c.bytes != 80 {
		t.Errorf("one more: %d are known with %d bytes", len(c.known), c.bytes)
	}
	c.bytes = callerBytes
	if refers(caller(7, 40), 1); !refers(caller(0, 40), 2) {
		t.Error("forgotten at the limit")
	}
	if refers(caller(8, 40), 3); refers(caller(0, 40), 4) {
		t.Error("not forgotten over the limit")
	}
}

// TestAFailedGroupKeepsWhatFits: the Later records that fit the limit stand in front, in their
// order; the others are lost, and records that an appender waits for are neither.
func TestAFailedGroupKeepsWhatFits(t *testing.T) {
	t.Parallel()
	text := func(s string) body { return body{text: []byte(s)} }
	for limit, want := range map[int]string{10: "aa bb cc new", 9: "aa bb new 1 lost", 8: "aa bb new 1 lost", 7: "aa new 2 lost", 4: "new 3 lost"} {
		g, next := newGroup(nil), newGroup(nil)
		g.add(text("aa"), true)
		g.add(text("waits"), false)
		g.add(text("bb"), true)
		g.add(text("cc"), true)
		next.add(text("new"), false)
		next.size++
		lost := g.keepLater(next, limit)
		var got []string
		for _, it := range next.items {
			got = append(got, string(it.text))
		}
		if lost > 0 {
			got = append(got, fmt.Sprint(lost, " lost"))
		}
		if strings.Join(got, " ") != want || next.next() != 1 || next.size > limit {
			t.Errorf("limit %d: %q, want %q; the next index is %d, the size %d", limit, got, want, next.next(), next.size)
		}
	}
}

// TestLaterIsKeptUpToTheLimit: while the log cannot be written.
func TestLaterIsKeptUpToTheLimit(t *testing.T) {
	t.Parallel()
	l := &Log{o: Options{Now: func() time.Time { return time.Unix(0, 0) }}.withDefaults()}
	l.next, l.trouble.why = newGroup(&l.mu), errors.New("broken")
	l.next.size = laterLimit - len(newBody(act(), time.Unix(0, 0)).text)
	if l.Later(act()); l.trouble.lost != 0 || len(l.next.items) != 1 || l.next.size != laterLimit {
		t.Errorf("at the limit: %d lost, %d bytes", l.trouble.lost, l.next.size)
	}
	if l.Later(act()); l.trouble.lost != 1 || len(l.next.items) != 1 {
		t.Errorf("over the limit: %d lost", l.trouble.lost)
	}
}

// TestOptionsHaveDefaults: as their comments say.
func TestOptionsHaveDefaults(t *testing.T) {
	t.Parallel()
	o := Options{}.withDefaults()
	if o.Interval != 100*time.Millisecond || o.SegmentBytes != 64<<20 || o.CheckpointEvery != time.Minute || o.Log == nil || o.Now == nil {
		t.Errorf("%+v", o)
	}
	o = Options{Interval: 1, SegmentBytes: 2, CheckpointEvery: 3, Now: func() time.Time { return time.Unix(4, 0) }}.withDefaults()
	if o.Interval != 1 || o.SegmentBytes != 2 || o.CheckpointEvery != 3 || o.Now() != time.Unix(4, 0) {
		t.Errorf("%+v", o)
	}
}

// TestALogBeginsOnlyBehindAClosedSegment: a later one than before, and behind its last record.
// After a refusal the beginning is unchanged.
func TestALogBeginsOnlyBehindAClosedSegment(t *testing.T) {
	t.Parallel()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := openLog(t, dir, Options{Key: key, SegmentBytes: 1000})
	for range 20 {
		if _, err := l.Append(act()); err != nil {
			t.Fatal(err)
		}
	}
	end := func(segment int) Beginning {
		last, err := lastOf(dir, segment)
		if err != nil {
			t.Fatal(err)
		}
		return Beginning{Mark{last.seq, string(last.hash[:]), timeShape}, segment}
	}
	if err := l.Begin(end(2)); err != nil {
		t.Fatal(err)
	}
	open := l.seg.number
	earlier, other := end(3), end(3)
	earlier.Seq--
	other.Hash = Genesis
	for text, b := range map[string]Beginning{
		"the log begins with segment 3 already":                           end(2),
		"the log begins with segment 3 already ":                          end(1),
		fmt.Sprintf("segment %08d.jsonl is not closed", open):             end(open),
		fmt.Sprintf("segment 3 does not end with record %d", earlier.Seq): earlier,
		fmt.Sprintf("segment 3 does not end with record %d", other.Seq):   other,
	} {
		if err := l.Begin(b); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(text)) {
			t.Errorf("behind record %d of segment %d: %v, want %q", b.Seq, b.Segment, err, text)
		}
		if now, err := ReadBeginning(dir, key.Verifier); err != nil || now != end(2) {
			t.Errorf("the beginning is %+v, %v", now, err)
		}
	}
	if err := l.Begin(end(3)); err != nil {
		t.Error(err)
	}
	stranger, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := endsWith(dir, end(4), stranger.Verifier); !errors.Is(err, ErrDamaged) {
		t.Errorf("behind a beginning with another signature: %v", err)
	}
}

// TestOnlyWholeCheckpointsAreDropped: the first ones, and never the last. After a refusal the
// file is unchanged, and the log goes on with either.
func TestOnlyWholeCheckpointsAreDropped(t *testing.T) {
	t.Parallel()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := openLog(t, dir, Options{Key: key, SegmentBytes: 1000, CheckpointEvery: time.Hour})
	for range 20 {
		if _, err := l.Append(act()); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, CheckpointsName)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.Index(before, []byte("\n\n"+Origin+"\n")) + 2
	for n, ok := range map[int]bool{0: true, 1: false, first - 1: false, first + 1: false, len(before) - 1: false, len(before): false, len(before) + 1: false} {
		err := l.DropCheckpoints(func(all []byte) int {
			if !bytes.Equal(all, before) {
				t.Errorf("the checkpoints are %q", all)
			}
			return n
		})
		if after, _ := os.ReadFile(path); (err == nil) != ok || !ok && !errors.Is(err, ErrDamaged) || !bytes.Equal(after, before) {
			t.Errorf("%d of %d bytes: %v", n, len(before), err)
		}
	}
	if err := l.DropCheckpoints(func([]byte) int { return first }); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(after, before[first:]) || len(after) == len(before)-first {
		t.Errorf("%v: %q became %q", err, before, after)
	}
	openLog(t, dir, Options{Key: key}) // it ends with a whole checkpoint
}

// TestASignatureHasOneSpelling: one line, ended, in strict base64, also where it is not checked.
func TestASignatureHasOneSpelling(t *testing.T) {
	t.Parallel()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := Beginning{Mark: Mark{7, Genesis, timeShape}}.sign(key)
	if err != nil {
		t.Fatal(err)
	}
	text, line, _ := strings.Cut(string(signed), "\n\n")
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := len(line) - len("=\n") - 1 // of its six bits two are not used
	other := line[:last] + digits[strings.IndexByte(digits, line[last])+1:][:1] + "=\n"
	for name, c := range map[string]struct {
		signature string
		ok        bool
	}{
		"as it was signed":     {line, true},
		"not ended":            {strings.TrimSuffix(line, "\n"), false},
		"two lines":            {line + line, false},
		"bits that are unused": {other, false},
		"not padded":           {strings.Replace(line, "=", "", 1), false},
		"nothing":              {"", false},
	} {
		for _, v := range []note.Verifier{nil, key.Verifier} {
			if _, err := ParseCheckpoint([]byte(text+"\n\n"+c.signature+"\n"), v); (err == nil) != c.ok {
				t.Errorf("%s, with a verifier %v: %v", name, v != nil, err)
			}
		}
	}
}

// TestTheLastCheckpointIsFoundAtTheEdgeOfTheTail: where the part of the file that is read
// begins with the empty line before it, and zeros follow it.
func TestTheLastCheckpointIsFoundAtTheEdgeOfTheTail(t *testing.T) {
	t.Parallel()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	var last []byte
	for seq := range uint64(20) {
		signed, err := Beginning{Mark: Mark{seq + 1, Genesis, timeShape}}.sign(key)
		if err != nil {
			t.Fatal(err)
		}
		last = append(signed, '\n')
		text = append(text, last...)
	}
	for _, before := range []int{-1, 0, 1, 2, 3} { // bytes of the tail before the last checkpoint
		dir := t.TempDir()
		zeros := make([]byte, 2*MaxCheckpoint-len(last)-before)
		if err := os.WriteFile(filepath.Join(dir, CheckpointsName), append(bytes.Clone(text), zeros...), 0o600); err != nil {
			t.Fatal(err)
		}
		c, cut, err := openCheckpoints(dir, key.Verifier)
		if before < 0 {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("a part of the last checkpoint: %+v, %v", c, err)
			}
			continue
		}
		if err != nil || c.last.Seq != 20 || cut != int64(len(zeros)) || c.size != int64(len(text)) {
			t.Errorf("%d bytes before it: %+v, cut %d, %v", before, c, cut, err)
		}
	}
}

// TestASegmentIsCreatedOnlyWhereThereIsNone: an empty file counts as none.
func TestASegmentIsCreatedOnlyWhereThereIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		f, err := create(dir, 1)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := os.WriteFile(SegmentPath(dir, 1), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := create(dir, 1); f != nil || !errors.Is(err, ErrDamaged) {
		t.Errorf("over a file with content: %v", err)
	}
}
