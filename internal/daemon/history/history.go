// Package history reads the audit log for a person: acts with their outcomes, the newest
// first.
//
// Invariant: it never writes, and it shows only what the record contains.
package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
)

// Record is one line of the audit log.
type Record struct {
	Seq       uint64            `json:"seq"`
	Time      time.Time         `json:"time"`
	Kind      string            `json:"kind"`
	Source    string            `json:"source"`
	Principal string            `json:"principal"`
	Facts     []Fact            `json:"facts"`
	Session   string            `json:"session"`
	Action    string            `json:"action"`
	Resource  string            `json:"resource"`
	Decision  string            `json:"decision"`
	Rule      string            `json:"rule"`
	Result    string            `json:"result"`
	Bytes     int64             `json:"bytes"`
	Count     int64             `json:"count"`
	Reason    string            `json:"reason"`
	Detail    map[string]string `json:"detail"`
	Ref       uint64            `json:"ref"`
}

// Fact is one fact about a caller, with its grade.
type Fact struct{ Name, Value, Grade string }

// Entry is one act in a list: a decision with its outcome, or an event.
type Entry struct {
	Record
	Server, Name, Client string
	Outcome              string // ok, denied, pending, open, event, or the kind of failure
	Took                 string // empty: the act is not over
	After                time.Duration
	Answered             int64 // bytes of the answer
}

// Failed reports an outcome that needs attention.
func (e Entry) Failed() bool {
	return e.Outcome != "ok" && e.Outcome != "open" && e.Outcome != "event" && e.Outcome != "pending"
}

// ending is the outcome record of an act.
type ending struct {
	result string
	at     time.Time
	bytes  int64
}

func entryOf(r Record, end *ending) Entry {
	e := Entry{Record: r, Client: Client(r.Facts), Outcome: "open"}
	e.Server, e.Name, _ = strings.Cut(r.Resource, "/")
	switch {
	case r.Decision == audit.Deny:
		e.Outcome = "denied"
	case r.Action == "approval.asked":
		e.Outcome = "pending"
	case r.Kind != audit.Decision:
		e.Outcome = "event"
	case end != nil:
		e.After = end.at.Sub(r.Time)
		e.Outcome, e.Took, e.Answered = end.result, took(e.After), end.bytes
	case len(r.Detail) > 0: // it was recorded together with its effect
		e.Outcome = "ok"
	}
	return e
}

func took(d time.Duration) string {
	if d < 10*time.Millisecond {
		return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + " ms"
	}
	if d < 10*time.Second {
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	return d.Round(100 * time.Millisecond).String()
}

// Client returns the program of a caller; for `doorward connect`, the program that started it.
func Client(facts []Fact) string {
	value := func(name string) string {
		for _, f := range facts {
			if f.Name == name {
				return f.Value
			}
		}
		return ""
	}
	exe := path.Base(value("exe"))
	if parent := value("parent_exe"); exe == "doorward" && parent != "" {
		return path.Base(parent)
	}
	if exe == "." {
		return ""
	}
	return exe
}

// SeqOf returns the number of a line, which begins with `{"seq":N,`.
func SeqOf(line []byte) uint64 {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok {
		return 0
	}
	digits, _, _ := bytes.Cut(rest, []byte(","))
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Filter selects entries of the log.
type Filter struct {
	Client, Server, Tool, Outcome, Session string
	All                                    bool // also events and the operator's own acts
	From, To                               time.Time
	Rule                                   string
	Lines                                  int  // largest number of lines to read; 0: MaxLines
	Older                                  bool // also find older acts that are under way, among MaxLines lines
}

func (f Filter) takes(e Entry) bool {
	switch {
	case !f.All && (e.Outcome == "event" || e.Action == policy.ActionAdmin || e.Action == policy.ActionApprove),
		f.Client != "" && !contains(e.Client, f.Client) && !contains(e.Principal, f.Client),
		f.Server != "" && e.Server != f.Server,
		f.Tool != "" && !contains(e.Name, f.Tool),
		f.Session != "" && e.Session != f.Session,
		f.Rule != "" && e.Rule != f.Rule,
		e.Time.Before(f.From),
		!f.To.IsZero() && e.Time.After(f.To):
		return false
	}
	switch f.Outcome {
	case "":
		return true
	case "error":
		return e.Failed() && e.Outcome != "denied"
	}
	return e.Outcome == f.Outcome
}

// plain returns a text that every line of a matching entry contains; empty: there is none.
func (f Filter) plain() []byte {
	switch {
	case f.Session != "" && plainName(f.Session):
		return []byte(`"session":"` + f.Session)
	case f.Outcome == "denied":
		return []byte(`"decision":"deny"`)
	case f.Server != "" && plainName(f.Server):
		return []byte(`"resource":"` + f.Server)
	}
	return nil
}

// plainName reports whether JSON encodes a name without escapes.
func plainName(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// MaxLines is the number of lines that one search reads if its filter does not set one; the
// next page continues after them.
const MaxLines = 20_000

// Found is one page of entries, the newest first.
type Found struct {
	Entries []Entry
	Next    uint64  // number before which the next page begins; 0: there is none
	Last    uint64  // number of the newest record that was read
	Older   []Entry // acts under way before the entries, with Filter.Older
}

// Search reads the log backwards from before (0: its end). The outcome of an act is mostly near it;
// the end of the log is read only for an act whose outcome is not found there, and for acts that are
// selected by outcome.
func Search(ctx context.Context, dir string, f Filter, before uint64, most int) (Found, error) {
	if before != 0 && f.Outcome == "" {
		s := newSearching(f, before, most)
		err := s.read(ctx, dir, before+MaxLines)
		if err != nil || !slices.ContainsFunc(s.out.Entries, Entry.unsettled) && !f.Older {
			return s.out, err
		}
	}
	s := newSearching(f, before, most)
	err := s.read(ctx, dir, math.MaxUint64)
	return s.out, err
}

// unsettled reports that a later record may say what became of the act.
func (e Entry) unsettled() bool { return e.Outcome == "open" || e.Outcome == "pending" }

// searching is the state of one Search.
type searching struct {
	Filter
	before      uint64
	most, lines int
	older       int    // number of lines in a row, up to the present one, that are too old
	part        []byte // contained in every matching line
	ends        map[uint64]*ending
	done        map[uint64]bool // questions to the operator that are over, and approvals that were used
	out         Found
}

func newSearching(f Filter, before uint64, most int) *searching {
	return &searching{Filter: f, before: before, most: most, lines: cmp.Or(f.Lines, MaxLines), part: f.plain(), ends: make(map[uint64]*ending), done: make(map[uint64]bool)}
}

// read reads the log backwards until the search is over, without the segments after record from.
func (s *searching) read(ctx context.Context, dir string, from uint64) error {
	for line, err := range auditlog.BackwardsFrom(ctx, dir, from) {
		if err != nil || s.over(line) {
			return err
		}
	}
	return nil
}

// over reads one line and reports whether the search is over. An outcome follows its decision
// in the log, so it is read before it.
func (s *searching) over(line []byte) bool {
	seq := SeqOf(line)
	s.out.Last = max(s.out.Last, seq)
	if isEnding(line) {
		noteEnding(s.ends, line, s.before)
		return false
	}
	s.answered(seq, line)
	if seq == 0 || s.before != 0 && seq >= s.before {
		return false
	}
	s.lines--
	full := len(s.out.Entries) == s.most
	if full && s.out.Next == 0 {
		s.out.Next, s.lines = seq+1, min(s.lines, MaxLines)
	}
	if s.lines < 0 || full && !s.Filter.Older {
		s.out.Next = cmp.Or(s.out.Next, seq+1)
		return true
	}
	var r Record
	if !bytes.Contains(line, s.part) || json.Unmarshal(line, &r) != nil {
		return s.past(line)
	}
	e := entryOf(r, s.ends[r.Seq])
	if e.Outcome == "pending" && s.done[seq] {
		e.Outcome = "event"
	}
	switch {
	case !s.takes(e):
	case !full:
		s.out.Entries = append(s.out.Entries, e)
	case e.Outcome == "open":
		s.out.Older = append(s.out.Older, e)
	}
	return s.past(line)
}

// strayLines is the number of records in a row that are too old after which a search is over.
// Fewer may have been written while the clock was behind.
const strayLines = 1000

// past reports whether line ends the search because it and the lines read before it are too
// old. It does not parse all of line, since most searches skip most lines.
func (s *searching) past(line []byte) bool {
	at, err := time.Parse(time.RFC3339Nano, Member(line, "time"))
	if s.older++; err != nil || !at.Before(s.From) {
		s.older = 0
	}
	return s.older > strayLines
}

// answered notes that a question to the operator is over: it was denied or has expired, or a
// call was made with the approval. A question that was approved without such a call remains
// open.
func (s *searching) answered(seq uint64, line []byte) {
	ref, err := strconv.ParseUint(Member(line, "ref"), 10, 64)
	if err == nil && (Member(line, "action") != "approval.granted" || s.done[seq]) {
		s.done[ref] = true
	}
}

// isEnding reports whether a line is an outcome, by the members at its beginning.
func isEnding(line []byte) bool {
	return bytes.Contains(line[:min(len(line), 120)], []byte(`"kind":"outcome"`))
}

// noteEnding notes an outcome, if its act has a number below before (0: any number).
func noteEnding(ends map[uint64]*ending, line []byte, before uint64) {
	ref, err := strconv.ParseUint(Member(line, "ref"), 10, 64)
	if before != 0 && ref >= before {
		return
	}
	at, wrong := time.Parse(time.RFC3339Nano, Member(line, "time"))
	if err != nil || wrong != nil {
		return
	}
	size, _ := strconv.ParseInt(Member(line, "bytes"), 10, 64) // 0 if there is none
	ends[ref] = &ending{result: Member(line, "result"), at: at, bytes: size}
}

// Member returns a number or a plain text of a line without parsing it. Quotes inside texts
// are escaped, so the name of a member cannot occur in a text.
func Member(line []byte, name string) string {
	_, rest, found := bytes.Cut(line, []byte(`,"`+name+`":`))
	if !found {
		return ""
	}
	if text, quoted := bytes.CutPrefix(rest, []byte(`"`)); quoted {
		text, _, _ = bytes.Cut(text, []byte(`"`))
		return string(text)
	}
	return string(rest[:len(rest)-len(bytes.TrimLeft(rest, "0123456789"))])
}
