package main

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// A daemon whose name another daemon on the same PostgreSQL has serves everything but mail, and
// says what to write. The other one goes on, and when it is killed the name is free.
func TestMailOfTwoDaemonsWithOneName(t *testing.T) {
	t.Parallel()
	dsn := doortest.Postgres(t)
	first := startMail(t, "first", mailConfig("host", dsn, ""))
	a := first.client("unix").mustOpen()
	a.register("planner")
	a.send("planner", "to myself")
	second := startMail(t, "second", mailConfig("host", dsn, "")+mailEcho)
	if s := second.agentServer(); !strings.Contains(s.Reason, "store.node") {
		t.Errorf("status of the server agent: %+v", s)
	}
	second.echoes()
	if r := second.client("unix").call("register", obj{"name": "tester"}); r.what() == "ok" {
		t.Errorf("it has mail: %s", r)
	}
	same(t, "mail of the first", a.queue(nil), []string{"to myself 1 false"})
	if strings.Contains(first.stderr(), "has the same name") {
		t.Errorf("the first one says %s", first.stderr())
	}
	first.kill()
	if !poll(mailPoll+mailSoon, func() bool { return second.client("unix").call("register", obj{"name": "tester"}).what() == "ok" }) {
		second.client("unix").register("tester")
	}
}
