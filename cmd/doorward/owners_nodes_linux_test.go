package main

import (
	"regexp"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// The list of agents names the node of each owner where daemons share a database: the same
// user of another node is another principal.
func TestOwnersOfTwoNodesAreToldApart(t *testing.T) {
	t.Parallel()
	dsn := doortest.Postgres(t)
	east, west := startMail(t, "east", mailConfig("east", dsn, "")), startMail(t, "west", mailConfig("west", dsn, ""))
	east.client("unix").mustOpen().register("planner")
	check := func(want string) {
		t.Helper()
		out, status := east.human("doorward", "agent", "peers")
		if status != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("status %d, want a line %s:\n%s", status, want, out)
		}
	}
	check(`(?m)^planner\S* +\S+ +uid:\d+ `)
	west.client("unix").mustOpen().register("tester")
	check(`(?m)^planner\S* +\S+ +east/uid:\d+ `)
	check(`(?m)^tester\S* +\S+ +west/uid:\d+ `)
}
