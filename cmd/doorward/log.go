package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon/history"
)

// logged is one act as `log --json` prints it.
type logged struct {
	Time      time.Time `json:"time"`
	Client    string    `json:"client"`
	Principal string    `json:"principal"`
	Server    string    `json:"server"`
	Tool      string    `json:"tool"`
	Action    string    `json:"action"`
	Outcome   string    `json:"outcome"` // ok, error, denied or pending
	MS        float64   `json:"ms"`      // milliseconds until the answer; 0 while pending
	Bytes     int64     `json:"bytes"`   // of the answer
	Reason    string    `json:"reason"`  // why the act was denied, or how it failed
	Ref       uint64    `json:"ref"`     // seq of the audit record
}

// logWanted holds the flags of log.
type logWanted struct {
	since, client, server, tool string
	denied, follow              bool
	n                           amount
}

// newHistory returns the command that prints the history of acts.
func newHistory() *cobra.Command {
	o := newInvocation()
	var w logWanted
	o.set.StringVar(&w.since, "since", "", "show acts since a duration such as 2h or 3d ago, or since a date")
	o.set.StringVar(&w.client, "client", "", "show acts of clients whose program name or principal contains this")
	o.set.StringVar(&w.server, "server", "", "one server")
	o.set.StringVar(&w.tool, "tool", "", "show acts on tools whose name contains this")
	o.set.BoolVar(&w.denied, "denied", false, "show only denied acts")
	o.set.BoolVar(&w.follow, "follow", false, "follow new acts")
	o.set.VarP(&w.n, "n", "n", "show at most this many of the last acts (default 50, all with --since)")
	return o.command("log [--since D] [--client C] [--server S] [--tool T] [--denied] [-n N] [--follow] [--json]", "print the history of acts",
		"doorward log --since 2h --denied", 0, 0,
		func(ctx context.Context, _ []string) error {
			dir, _, err := o.auditDir()
			if err != nil {
				return err
			}
			return w.run(ctx, o, dir)
		})
}

func (w logWanted) run(ctx context.Context, o *invocation, dir string) error {
	f := history.Filter{Client: w.client, Server: w.server, Tool: w.tool, Lines: 1 << 40, Older: w.follow}
	if w.denied {
		f.Outcome = "denied"
	}
	most := cmp.Or(int(w.n), 50)
	if w.since != "" {
		from, err := sinceTime(w.since, time.Now())
		if err != nil {
			return fail(exitUsage, "--since %q: %v", w.since, err)
		}
		f.From, most = from, cmp.Or(int(w.n), 1<<40)
	}
	found, err := searchSettled(ctx, dir, f, most)
	if err != nil {
		return err
	}
	if w.server != "" && len(found.Entries) == 0 {
		hintUnconfigured(o.options, w.server)
	}
	show := printerOf(o.json)
	for _, e := range slices.Backward(found.Entries) {
		if err := show(e); err != nil {
			return err
		}
	}
	if !w.follow {
		return nil
	}
	return goOn(ctx, dir, f, found, show)
}

// outcomeDelay is the time after which the outcome of an act that is over is in the file: it is
// written with the next record or 50 ms later.
const outcomeDelay = 100 * time.Millisecond

// searchSettled searches the log, and again after outcomeDelay if an act is under way: a caller
// that has just had its answer is shown the outcome.
func searchSettled(ctx context.Context, dir string, f history.Filter, most int) (history.Found, error) {
	found, err := history.Search(ctx, dir, f, 0, most)
	if err != nil || !slices.ContainsFunc(found.Entries, func(e history.Entry) bool { return e.Outcome == "open" }) {
		return found, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(outcomeDelay):
	}
	return history.Search(ctx, dir, f, 0, most)
}

// goOn prints the acts after those that were found when they have ended. Acts that were found
// under way are printed again.
func goOn(ctx context.Context, dir string, f history.Filter, found history.Found, show func(history.Entry) error) error {
	joined := history.NewJoin(f, slices.Concat(found.Entries, found.Older)...)
	err := auditlog.Follow(ctx, dir, found.Last+1, func(line []byte) error {
		if e, ok := joined.Take(line); ok {
			return show(e)
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// sinceTime returns the time of text: a duration before now, with d for days, or a date in
// local time.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("write a duration such as 2h or 3d, or a date such as 2006-01-02")
}

func printerOf(asJSON bool) func(history.Entry) error {
	if asJSON {
		return func(e history.Entry) error { return printJSON(loggedOf(e)) }
	}
	width := columns()
	return func(e history.Entry) error { return printAct(loggedOf(e), width) }
}

func loggedOf(e history.Entry) logged {
	l := logged{Time: e.Time, Client: e.Client, Principal: e.Principal, Server: e.Server, Tool: e.Name, Action: e.Action,
		MS: float64(e.After.Microseconds()) / 1000, Bytes: e.Answered, Ref: e.Seq, Outcome: "error"}
	switch e.Outcome {
	case "ok", "denied":
		l.Outcome = e.Outcome
	case "open", "pending":
		l.Outcome = "pending"
	default:
		l.Reason = e.Outcome
	}
	if e.Outcome == "denied" {
		l.Reason = cmp.Or(e.Reason, e.Rule)
	}
	return l
}

// printAct prints one line about an act.
func printAct(l logged, width int) error { return printLine(actLine(l, width), colourOf(l.Outcome)) }

// actLine returns one line of at most width characters: time, program, act and outcome.
func actLine(l logged, width int) string {
	what := l.Server
	if l.Tool != "" {
		what += "/" + l.Tool
	}
	if l.Action != "tools/call" || what == "" {
		what = strings.TrimSpace(wordOrNothing(l.Action) + " " + wordOrNothing(what))
	} else {
		what = plaintext.Word(what)
	}
	end := fmt.Sprintf("%-7s", l.Outcome)
	switch {
	case l.Reason != "":
		end += "  " + plaintext.Line(l.Reason)
	case l.Outcome == "ok" && l.MS > 0:
		end += fmt.Sprintf("  %5.0f ms  %s", l.MS, sizeOf(l.Bytes))
	}
	room := max((width-41)*3/5, 1)
	line := fmt.Sprintf("%s  %-12s  %-*s  %s", l.Time.Local().Format("01-02 15:04:05"), fit(plaintext.Line(cmp.Or(l.Client, l.Principal)), 12),
		room, fit(plaintext.Line(what), room), end)
	return strings.TrimRight(fit(line, width), " ")
}

func colourOf(outcome string) colour {
	return map[string]colour{"error": red, "denied": red, "pending": yellow}[outcome]
}

func sizeOf(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%d kB", n/1000)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}
