package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// The operator sees whether a principal is of this node wherever one is shown: the same user of
// another node is another principal.
func TestTheOperatorSeesTheNodeOfAPrincipal(t *testing.T) {
	t.Parallel()
	east, west := allies(t, doortest.Postgres(t))
	planner, tester := east.client("unix").mustOpen(), west.client("unix").mustOpen()
	planner.register("planner")
	tester.must("register", obj{"name": "tester", "inbound": "hold"})
	id := planner.send("tester", "text").MessageID
	user := fmt.Sprintf("uid:%d", os.Getuid())
	for _, argv := range []string{"agent hold ls", "agent trace " + id, "agent inbox tester", "agent inbox tester --bodies", "agent peers show planner", "pending"} {
		for _, form := range []string{"", " --json"} {
			out, status := west.human(strings.Fields("doorward " + argv + form)...)
			if status != 0 || !strings.Contains(out, "east/"+user) || strings.Contains(out, "west/") {
				t.Errorf("%s%s: status %d, want east/%s and no other node:\n%s", argv, form, status, user, out)
			}
		}
	}
	if out, status := east.human("doorward", "agent", "transfer", "tester", "--to", "west/"+user); status != 2 || !strings.Contains(out, "such as uid:1000") {
		t.Errorf("a principal of another node: status %d\n%s", status, out)
	}
	// A name that was moved to this node belongs to a principal of this node.
	if out, status := east.human("doorward", "agent", "transfer", "tester", "--to", user); status != 0 {
		t.Fatal(out)
	}
	for d, want := range map[*mailDaemon]string{east: `owner +` + user + `\s+node +east\s`, west: `owner +east/` + user + `\s+node +east\s`} {
		if out, _ := d.human("doorward", "agent", "peers", "show", "tester"); !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("want %s:\n%s", want, out)
		}
	}
}

// The list of decisions names the sender of a held message with its namespace, and a command
// that shows the text of this message, also where agents of other namespaces have both names.
func TestAHeldMessageIsShownWithItsOwnMailbox(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", ""))
	for _, name := range []string{"tester", "planner"} {
		c := d.client("unix").mustOpen()
		c.register(name)
		c.send("tester", "harmless text of "+name)
	}
	planner, tester := d.client("unix").mustOpen(), d.client("unix").mustOpen()
	planner.must("register", obj{"name": "planner", "namespace": "other"})
	tester.must("register", obj{"name": "tester", "namespace": "other", "inbound": "hold"})
	planner.send("tester", "the held text")
	out, _ := d.human("doorward", "pending")
	if !strings.Contains(out, "by planner@other, ") {
		t.Errorf("the sender has no namespace:\n%s", out)
	}
	m := regexp.MustCompile(`its text: (.*)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no command:\n%s", out)
	}
	if out, status := d.human(strings.Fields(m[1])...); status != 0 || !strings.Contains(out, "the held text") || strings.Contains(out, "harmless") {
		t.Errorf("%s: status %d\n%s", m[1], status, out)
	}
}

// The commands that move a name or take it out of use count the messages that they moved or
// ended, the held ones too.
func TestMovedAndEndedMessagesAreCounted(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", ""))
	planner, tester := d.client("unix").mustOpen(), d.client("unix").mustOpen()
	planner.register("planner")
	tester.register("tester")
	planner.send("tester", "queued")
	tester.must("register", obj{"inbound": "hold"})
	planner.send("tester", "held")
	for _, c := range []struct{ argv, want string }{
		{"agent transfer tester --to token:ci", "its 2 messages were transferred too"},
		{"agent peers retire tester", "2 messages waiting for it have expired"},
	} {
		if out, status := d.human(strings.Fields("doorward " + c.argv)...); status != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: status %d, want %q:\n%s", c.argv, status, c.want, out)
		}
	}
}
