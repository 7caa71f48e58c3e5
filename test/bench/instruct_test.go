//go:build linux

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
)

func TestTheDocumentsHaveTheirSizeAndUniqueSentences(t *testing.T) {
	t.Parallel()
	all := guidance()
	names, bytes := map[string]bool{}, 0
	for _, d := range all {
		names[d.name], bytes = true, bytes+len(d.text)
		for _, other := range all {
			if strings.Contains(d.text, planted(other.name)) != (d.name == other.name) {
				t.Errorf("%s and the sentence of %s", d.name, other.name)
			}
		}
	}
	if len(names) != allDocs || bytes < 38<<10 || bytes > 44<<10 {
		t.Errorf("%d documents of %d bytes", len(names), bytes)
	}
	for _, name := range []string{"voice", rendered, firstGuide, lastGuide} {
		if !names[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// The product accepts the documents without problems, and a structural reader gets the sentences that the
// paths look for.
func TestTheDocumentsAreValidAndDelivered(t *testing.T) {
	t.Parallel()
	var docs []*document.Document
	for _, d := range guidance() {
		parsed, err := document.Parse(d.name+".md", []byte(d.text))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, parsed)
	}
	set, problems := document.NewSet(docs)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	view := set.View(document.Caller{Principal: "uid:1000"}, func(d *document.Document) bool { return set.Tier(d) == document.Structural })
	short, long := view.Compose(2048, markA), view.Compose(65536, markA)
	filled, err := view.Render(rendered, []byte(`{"title":"it","count":3}`))
	if err != nil || !strings.Contains(filled, planted("template-02")) {
		t.Errorf("%v: %s", err, filled)
	}
	if len(view.Documents()) != allDocs || !strings.Contains(short.Text, planted(firstGuide)) || !short.Cut || !strings.Contains(long.Text, planted(lastGuide)) {
		t.Errorf("%d documents, %s", len(view.Documents()), short.Text)
	}
}

const markA, markB = "ref: dwi-abcdefghijkl2345", "ref: dwi-bbcdefghijkl2345"

func TestAnAnswerIsWholeDegradedOrNone(t *testing.T) {
	t.Parallel()
	whole := planted(firstGuide) + "\n\n" + markA + "\n"
	for name, tt := range map[string]struct {
		a     answer
		whole bool
		none  bool
	}{
		"whole":             {answer{Status: 200, Body: []byte(whole)}, true, false},
		"in JSON":           {answer{Status: 200, Body: []byte(`{"instructions":"` + strings.ReplaceAll(whole, "\n", `\n`) + `"}`)}, true, false},
		"another document":  {answer{Status: 200, Body: []byte(planted(lastGuide) + markA)}, false, false},
		"no mark":           {answer{Status: 200, Body: []byte(planted(firstGuide))}, false, false},
		"a mark cut short":  {answer{Status: 200, Body: []byte(planted(firstGuide) + markA[:20])}, false, false},
		"no mark's form":    {answer{Status: 200, Body: []byte(planted(firstGuide) + "ref: dwi-0000000000000000")}, false, false},
		"the store is away": {answer{Status: 503, Body: []byte(whole)}, false, false},
		"limited":           {answer{Status: 429}, false, true},
		"no session":        {answer{Status: 401}, false, true},
	} {
		if got, err := wholeText(tt.a, firstGuide); got != tt.whole || (err != nil) != tt.none {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestAMarkThatTwoSessionsGetIsNoticed(t *testing.T) {
	t.Parallel()
	seen := marks{}
	text := func(mark string) answer { return answer{Status: 200, Body: []byte(planted(firstGuide) + mark)} }
	for _, mark := range []string{markA, markB, "", ""} {
		if whole, err := seen.whole(text(mark)); err != nil || whole != (mark != "") {
			t.Errorf("%q: %v, %v", mark, whole, err)
		}
	}
	if _, err := seen.whole(text(markA)); err == nil {
		t.Error("a mark was taken twice")
	}
}

// Every errand gets the same number of turns. The first turn is not counted. An errand that fails is left out.
func TestErrandsTakeTurns(t *testing.T) {
	t.Parallel()
	var order []string
	done := 0
	clock := func() (time.Duration, error) { return 0, nil }
	errandOf := func(name string, do func() (bool, error)) errand {
		return errand{name: name, clock: clock, do: do, before: func(int) error { order = append(order, name); return nil }}
	}
	r := &run{rounds: 1, broken: make(map[string]bool), started: time.Now()}
	costs := r.inTurns([]errand{
		errandOf("a", func() (bool, error) { done++; return done%100 != 0, nil }),
		errandOf("b", func() (bool, error) { return true, nil }),
		errandOf("c", func() (bool, error) { return false, errors.New("broken") }),
	})
	if got := len(costs[0].all()); got != turnsPerRound*turnCalls || done != got+turnCalls {
		t.Errorf("%d counted of %d", got, done)
	}
	if costs[0].Degraded != 5 || costs[1].Degraded != 0 || len(costs[2].Turns) != 0 || len(r.failures) != 1 {
		t.Errorf("degraded: %d and %d; failures: %v", costs[0].Degraded, costs[1].Degraded, r.failures)
	}
	if got, want := strings.Join(order[:9], ""), "abcbaabab"; got != want {
		t.Errorf("the order is %s, want %s", got, want)
	}
}

func TestInstructionsAreJudged(t *testing.T) {
	t.Parallel()
	cost := func(name, base string, n int, took ...time.Duration) fetchCost {
		c := fetchCost{Path: name, Base: base}
		for _, d := range took {
			turn := fetchTurn{CPU: 1}
			for range n {
				turn.Took = append(turn.Took, d)
			}
			c.Turns = append(c.Turns, turn)
		}
		return c
	}
	const ms = time.Millisecond
	res := &results{Instructions: &instructCost{
		Fetches: []fetchCost{
			cost(pathHealth, "", 500, ms, 10*ms), cost(pathCold, pathHealth, 500, 2*ms, 20*ms), cost(pathColdDial, pathHealth, 500, 2*ms, 51*ms),
			cost(pathCached, pathHealth, 500, ms, ms), cost(pathWhole, pathHealth, 500, ms, ms), cost(pathAll, pathHealth, 499, ms, ms),
		},
		Calls: []fetchCost{cost(pathUnused, "", 50, 100, 1000), cost(pathLooked, pathUnused, 50, 105, 1050), cost(pathShown, pathUnused, 50, 120, 1200)},
	}}
	res.Instructions.Fetches[1].Degraded = 1
	report := func() string {
		var b strings.Builder
		printVerdicts(&b, res.judge())
		res.printInstructions(&b)
		return b.String()
	}
	wanted := func(text string, lines ...string) {
		t.Helper()
		for _, want := range lines {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
	few := report()
	wanted(few,
		"| instructions, "+pathCold+", p95 | at most 50 ms | 20.00 ms | pass |",
		"| instructions, "+pathColdDial+", p95 | at most 50 ms | 51.00 ms | MISS |",
		"| instructions, "+pathLooked+", p50, of the same call without | at most 1.1 | 1.05 | pass |",
		"| instructions, "+pathShown+", p50, of the same call without | at most 1.1 | 1.20 | MISS |",
		"| "+pathCold+" | 1000 | 20000 (2.00) |")
	if strings.Contains(few, pathAll+", p95") || strings.Contains(few, "degraded answers") {
		t.Errorf("too few fetches were judged:\n%s", few)
	}
	res.Instructions.Fetches[5] = cost(pathAll, pathHealth, 500, ms, ms)
	wanted(report(), "| instructions, degraded answers of 5000 fetches | at most 0 | 1.00 | MISS |")
	res.Instructions.Fetches[1].Degraded = 0
	wanted(report(), "| instructions, degraded answers of 5000 fetches | at most 0 | 0.00 | pass |")
}
