package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/doortest"
)

// appended is what one goroutine has appended, in its order.
type appended struct {
	names []string
	seqs  map[string]uint64 // of acts; 0: refused
}

// appendMany appends acts, groups and outcomes, each with a name of its own and a length that
// differs from that of its neighbours. over ends it after at least 40 rounds.
func appendMany(l *Log, worker int, over func() bool) appended {
	a := appended{seqs: make(map[string]uint64)}
	who := principal.New("uid:1000", principal.Fact{Name: "exe", Value: fmt.Sprint(worker, strings.Repeat("/bin", 9)), Grade: principal.Attested})
	record := func(kind string) *Record {
		name := fmt.Sprintf("%s/%d/%d/%s.", kind, worker, len(a.names), strings.Repeat(string(rune('a'+worker)), len(a.names)*37%400))
		a.names = append(a.names, name)
		return &Record{Kind: Decision, Source: "gate", Who: who, Resource: name}
	}
	for i := 0; i < 40 || !over(); i++ {
		l.Later(record("later"))
		r := record("act")
		seq, err := l.Append(r)
		if a.seqs[r.Resource] = seq; (err == nil) != (seq > 0) {
			panic(fmt.Sprint(seq, err))
		}
		if i%5 > 0 {
			continue
		}
		rs := []*Record{record("group"), record("group"), record("group")}
		first, err := l.AppendGroup(rs)
		for j, r := range rs {
			if a.seqs[r.Resource] = 0; err == nil {
				a.seqs[r.Resource] = first + uint64(j)
			}
		}
	}
	return a
}

// TestConcurrentAppendsWhileWritesFail: of concurrent appenders, each act that was appended has
// exactly its line under its number, a refused act has none, and an outcome has one unless it was
// counted as lost; the records of one appender keep their order and their caller, and the chain is whole.
func TestConcurrentAppendsWhileWritesFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, dir, Options{Always: true, Interval: time.Hour, SegmentBytes: 1 << 30})
	full := writeFails(t)
	const workers, failures = 8, 4
	var wg sync.WaitGroup
	all := make([]appended, workers)
	failed := make(chan struct{})
	for w := range workers {
		wg.Go(func() {
			all[w] = appendMany(l, w, func() bool {
				select {
				case <-failed:
					return true
				default:
					return false
				}
			})
		})
	}
	for range failures {
		good := swapFile(l, full)
		doortest.Until(t, 30*time.Second, "it fails", func() bool { return l.State().State != StateOK })
		swapFile(l, good)
		doortest.Until(t, 30*time.Second, "it recovers", func() bool { return l.State().State == StateOK })
	}
	close(failed)
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n, err := chained(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(SegmentPath(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	lines, facts := make(map[string]uint64), make(map[uint64]string)
	lost, refused := int64(0), int64(0)
	for line := range bytes.Lines(text) {
		var r struct {
			Seq              uint64
			Resource, Action string
			Count            int64
			As               uint64
			Facts            []struct{ Value string }
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		switch r.Action {
		case "audit.lost":
			lost += r.Count
		case "audit.refused":
			refused += r.Count
		case "":
			if lines[r.Resource] > 0 {
				t.Errorf("%s is there twice", r.Resource)
			}
			lines[r.Resource] = r.Seq
			if r.As == 0 && len(r.Facts) == 1 {
				facts[r.Seq] = r.Facts[0].Value
				r.As = r.Seq
			}
			if worker := strings.Split(r.Resource+"/", "/")[1]; facts[r.As] != worker+strings.Repeat("/bin", 9) {
				t.Errorf("%s has the caller %q", r.Resource, facts[r.As])
			}
		}
	}
	seen, missing, turned := 0, int64(0), int64(0)
	for _, a := range all {
		last := uint64(0)
		for _, name := range a.names {
			at, there := lines[name]
			if there {
				seen++
				if at <= last {
					t.Errorf("%s has the number %d, and the record before it %d", name, at, last)
				}
				last = at
			}
			seq, act := a.seqs[name]
			switch {
			case act && seq != at:
				t.Errorf("%s was appended as %d and is %d", name, seq, at)
			case act && !there:
				turned++
			case !there:
				missing++
			}
		}
	}
	if seen != len(lines) || missing != lost || turned != refused || turned == 0 {
		t.Errorf("%d of %d records are known; %d outcomes are missing and %d counted; %d acts were refused and %d counted; %d lines", seen, len(lines), missing, lost, turned, refused, n)
	}
}
