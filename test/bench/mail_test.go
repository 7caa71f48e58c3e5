//go:build linux

package main

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Each send of the bare loop is a row of its own and one step of its worker's counter, durably.
func TestTheBareLoopStoresEachMessage(t *testing.T) {
	t.Parallel()
	l, err := openBareLoop(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	p := &post{send: l.send}
	w, err := p.sends(maxSenders, 50*time.Millisecond)
	if err != nil || w.Calls == 0 || w.P99 < w.P50 || w.PerSecond <= 0 {
		t.Fatalf("%+v, %v", w, err)
	}
	var rows, counted, bodies int
	var mode string
	var synchronous int
	if err := errors.Join(l.db.QueryRow("SELECT count(*), count(DISTINCT body) FROM messages").Scan(&rows, &bodies),
		l.db.QueryRow("SELECT sum(next_seq) FROM mailboxes").Scan(&counted),
		l.db.QueryRow("PRAGMA journal_mode").Scan(&mode), l.db.QueryRow("PRAGMA synchronous").Scan(&synchronous)); err != nil {
		t.Fatal(err)
	}
	if rows != w.Calls || counted != w.Calls || bodies != w.Calls || mode != "wal" || synchronous != 2 {
		t.Errorf("%d sends: %d rows, %d texts, counters at %d; %s, synchronous %d", w.Calls, rows, bodies, counted, mode, synchronous)
	}
	if err := l.send(0, 0, 1); err == nil {
		t.Error("an id was stored twice")
	}
}

// Each message that the book accepts is fetched exactly once.
func TestTheBookOfTheBenchmarkDeliversWhatItTakes(t *testing.T) {
	t.Parallel()
	p, err := openBookPost(nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	sent, err := p.sends(2, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	fetched := 0
	for worker := range 2 {
		for {
			n, err := p.fetch(worker)
			if err != nil {
				t.Fatal(err)
			}
			if fetched += n; n == 0 {
				break
			}
		}
	}
	if fetched != sent.Calls {
		t.Errorf("%d sends and %d fetches", sent.Calls, fetched)
	}
	w, err := p.drain(2, 60, 240)
	if err != nil || w.Calls != 120 {
		t.Errorf("%+v, %v", w, err)
	}
}

// A filled store opens, counts its messages and passes fsck.
func TestAFullStoreOpensWithTheLimitsOfTheProduct(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := fill(dir, 1250); err != nil {
		t.Fatal(err)
	}
	b, err := openBook(dir, plentyOfMail)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	all, err := b.mail.Desk().Totals(t.Context())
	if err != nil || all.Accepted != 1250 {
		t.Errorf("%d messages, %v", all.Accepted, err)
	}
	if check, err := b.mail.Desk().Fsck(t.Context(), false, said); err != nil || !check.OK {
		t.Errorf("%+v, %v", check, err)
	}
}

func TestACrewCountsCallsUntilItIsDone(t *testing.T) {
	t.Parallel()
	var left atomic.Int64
	left.Store(100)
	w, err := crew(4, time.Now().Add(time.Minute), func(int) (int, error) {
		if left.Add(-1) < 0 {
			return 0, errDone
		}
		return 50, nil
	})
	if err != nil || w.Calls != 5000 {
		t.Errorf("%+v, %v", w, err)
	}
	broken := errors.New("broken")
	if _, err := crew(2, time.Now().Add(time.Minute), func(worker int) (int, error) {
		if worker == 1 {
			return 0, broken
		}
		return 0, errDone
	}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestMessagesAreJudged(t *testing.T) {
	t.Parallel()
	ms := func(n ...time.Duration) (all []time.Duration) {
		for _, d := range n {
			all = append(all, d*time.Millisecond)
		}
		return all
	}
	res := &results{Mail: &mailCost{
		Sends: []cell{
			{Path: pathLoop, Sessions: maxSenders, Rounds: []window{{PerSecond: 1000}, {PerSecond: 100}}},
			{Path: pathBook, Sessions: maxSenders, Rounds: []window{{PerSecond: 5000}, {PerSecond: 500}}},
			{Path: pathDaemon, Sessions: maxSenders, Rounds: []window{{PerSecond: 490}, {PerSecond: 49}}},
		},
		Starts: []startCost{
			{Path: pathBook, Took: ms(10, 11, 12), RSS: []float64{10_000}}, {Path: pathBook, Stored: storedMail, Took: ms(60, 62, 100), RSS: []float64{14_000}},
			{Path: pathDaemon, Took: ms(10), RSS: []float64{10_000}}, {Path: pathDaemon, Stored: storedMail / 10, Took: ms(900), RSS: []float64{900_000}},
		},
	}}
	var report strings.Builder
	printVerdicts(&report, res.judge())
	res.printMail(&report)
	for _, want := range []string{
		"| messages, book, sends per second, 16 senders, of the bare loop's | at least 0.8 | 5.00 | pass |",
		"| messages, doorward, sends per second, 16 senders, of the bare loop's | at least 0.8 | 0.49 | MISS |",
		"| messages, book, start with 100,000 stored, beyond an empty store's | at most 50 ms | 51.00 ms | MISS |",
		"| messages, book, resident memory for 100,000 stored | at most 5 MB | 4.10 MB | pass |",
		"| 16 | doorward | 270 (0.49) |",
		"| book | 100000 | 62.0 | 14.3 |",
	} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("no %q in\n%s", want, report.String())
		}
	}
	if strings.Contains(report.String(), "messages, doorward, start") {
		t.Error("a start with fewer messages was judged")
	}
}
