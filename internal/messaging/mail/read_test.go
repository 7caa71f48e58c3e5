package mail_test

import (
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// reads returns texts and recipients of the messages that Read gives.
func (a *agent) reads(q mail.Query) (out []string) {
	a.b.t.Helper()
	_, all, _, err := a.b.Read(a.b.t.Context(), a.Owner, q)
	must(a.b.t, err)
	for _, s := range all {
		out = append(out, fmt.Sprint(s.Body, " to ", s.To))
	}
	return out
}

// Read gives both sides of a conversation, in its order. It does not give a recipient messages
// that wait, are held or were not confirmed, nor messages of others.
func TestReadGivesWhatWasSaid(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester, other := b.join("planner"), b.join("tester"), b.join("other")
		first := planner.send(draft("one", tester, other))
		d := draft("held", tester)
		d.To[0].Hold = true
		planner.send(d)
		b.later(2_000_000)
		got := tester.inbox(mail.Fetch{})
		equal(t, "what was given and not confirmed", tester.reads(mail.Query{}))
		d = draft("Two", planner)
		d.ReplyTo = got.Messages[0].ID
		tester.send(d)
		b.later(2_000_000)
		planner.read(planner.inbox(mail.Fetch{}))
		other.send(draft("a secret", other))
		equal(t, "of the sender", planner.reads(mail.Query{}), "one to other tester", "held to tester", "Two to planner")
		equal(t, "of the recipient", tester.reads(mail.Query{}), "one to tester", "Two to planner")
		equal(t, "of a recipient that has not read", other.reads(mail.Query{}), "a secret to other")
		for _, a := range []*agent{planner, tester} {
			same(t, "in the thread", len(a.reads(mail.Query{Thread: first.Thread})), 2)
			equal(t, "with a word", a.reads(mail.Query{Text: "tWo"}), "Two to planner")
			equal(t, "with a pattern", a.reads(mail.Query{Text: "%"}))
			same(t, "bounded", len(a.reads(mail.Query{Max: 1})), 1)
		}
		_, _, _, err := b.Read(t.Context(), planner.Owner, mail.Query{Thread: "x' OR 1=1 --"})
		refused(t, err, mail.InvalidArgument)
		b.sound()
	})
}

// Read finds a text behind 350 newer messages. Of too many matches it gives the newest.
func TestReadGoesThroughManyPages(t *testing.T) {
	onSQLite(t, mail.Options{Limits: mail.Limits{SenderMessages: 1000, Duplicate: -1}}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		planner.send(draft("the needle", tester))
		for i := range 350 {
			planner.send(draft(fmt.Sprint("hay ", i), tester))
		}
		equal(t, "far back", planner.reads(mail.Query{Text: "needle"}), "the needle to tester")
		_, all, more, err := b.Read(t.Context(), planner.Owner, mail.Query{Text: "hay", Max: 50})
		must(t, err)
		same(t, "the newest", all[len(all)-1].Body, "hay 349")
		same(t, "the oldest of them", all[0].Body, "hay 300")
		same(t, "more", more, true)
	})
}
