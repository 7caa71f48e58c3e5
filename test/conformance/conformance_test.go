//go:build interop

// Package conformance runs the public MCP conformance suites, first against
// go-sdk's reference server itself, which proves the harness, then through the
// doorward binary. Doorward conforms when each route reaches the totals that the
// reference server reaches alone.
//
// The suites cannot send an Authorization header. The listener has no credential, so
// they are authenticated by the owner of their loopback socket, which the kernel
// reports. All checks of the front are on.
package conformance

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// target is one pair of route and suite with the checks that must pass.
type target struct {
	route  string
	suite  suite
	url    string
	passed int // checks, at least
	// failed is the greatest number of checks that may fail between two eras: some need
	// what the other era does not have.
	failed int
}

// configuration has the fixture four times: on stdio with both eras and with the legacy
// one alone, and by HTTP pinned to each era. The limits are high because the suites open dozens of
// sessions and do not close them. Tools of the fixture ask for sampling and roots.
const configuration = `
mcpServers:
  stdio:
    command: %q
    doorward: {ask: {allow: [elicitation, sampling, roots]}, max_instances: 1000}
  stdiolegacy:
    command: %q
    doorward: {ask: {allow: [elicitation, sampling, roots]}, max_instances: 1000, protocol: legacy}
  stateful:
    type: http
    url: %q
    doorward: {ask: {allow: [elicitation, sampling, roots]}, allow_private: true, protocol: legacy}
  stateless:
    type: http
    url: %q
    doorward: {ask: {allow: [elicitation, sampling, roots]}, allow_private: true, protocol: modern}
agent: {enabled: false}
limits: {sessions: 5000, sessions_per_principal: 5000, children: 1000, calls_per_second: 100000%s}
`

const (
	direct = "direct"
	r1     = "R1: stdio"
	r1poll = "R1: stdio, streams of at most 50 ms"
	r2     = "R2: HTTP, stateful, legacy"
	r2poll = "R2: HTTP, stateful, streams of at most 50 ms"
	r3     = "R3: HTTP, stateless, modern"
	x1     = "X1: modern client, stdio server of the legacy era"
	x2     = "X2: modern client, HTTP server of the legacy era"
	x3     = "X3: legacy client, HTTP server of the modern era"
)

func TestConformance(t *testing.T) {
	legacy := fixture.ServeEverything(t, fixture.ResumableEverything(t), true)
	modern := fixture.ServeEverything(t, fixture.Everything(t), false)
	start := func(limit string) *doortest.Daemon {
		return doortest.Start(t, fmt.Sprintf(configuration, fixture.Everything(t), fixture.Everything(t), legacy, modern, limit), doortest.Options{})
	}
	d, polling := start(""), start(", stream: 50ms")

	// Behind Doorward server-sse-polling passes two checks more in 0.1.16, because
	// Doorward's own streams can be resumed. Its last check requires that the stream
	// ends in mid-call, which Doorward does only under limits.stream: 83 of 84
	// without it, 47 and 84 with it.
	targets := []target{
		{direct, c1All, legacy, 44, 0},
		{direct, c2Legacy, legacy, 84, 0},
		{direct, c2Frozen, modern, 165, 0},
		{direct, c2Modern, modern, 153, 0},

		{r1, c1All, d.MCP("stdio"), 46, 0},
		{r1, c2Legacy, d.MCP("stdio"), 83, 0},
		{r1, c2Frozen, d.MCP("stdio"), 165, 0},
		{r1, c2Modern, d.MCP("stdio"), 153, 0},

		{r1poll, c1All, polling.MCP("stdio"), 47, 0},
		{r1poll, c2Legacy, polling.MCP("stdio"), 84, 0},

		{r2, c1All, d.MCP("stateful"), 46, 0},
		{r2, c2Legacy, d.MCP("stateful"), 83, 0},

		{r2poll, c1All, polling.MCP("stateful"), 47, 0},
		{r2poll, c2Legacy, polling.MCP("stateful"), 84, 0},

		{r3, c2Frozen, d.MCP("stateless"), 165, 0},
		{r3, c2Modern, d.MCP("stateless"), 153, 0},

		// A legacy server does not name its questions, so the suite's own keys do not come
		// back. As a modern server the fixture asks a legacy client nothing.
		{x1, c2Modern, d.MCP("stdiolegacy"), 146, 3},
		{x2, c2Modern, d.MCP("stateful"), 146, 3},
		{x3, c1All, d.MCP("stateless"), 34, 4},
		{x3, c2Legacy, d.MCP("stateless"), 71, 4},
	}
	runs := runCount(t)
	var table results
	for _, target := range targets {
		t.Run(target.route+"/"+target.suite.version+" "+target.suite.name, func(t *testing.T) {
			for i := range runs {
				start := time.Now()
				o := target.suite.run(t, target.url)
				t.Logf("run %d: %d passed, %d failed, %d warnings in %s", i+1, o.passed, o.failed, o.warnings, time.Since(start).Round(time.Millisecond))
				table.add(target, o)
				judge(t, target, o)
			}
		})
	}
	table.write(t, runs)
}

// judge compares a run with its target. A frozen set contains scenarios of
// extensions that do not count, so its exit status decides.
func judge(t *testing.T, want target, got outcome) {
	t.Helper()
	bad := got.passed < want.passed || want.failed == 0 && got.exit != 0
	if !want.suite.unrated {
		bad = bad || got.failed > want.failed
	}
	if !bad {
		return
	}
	t.Errorf("%d passed and %d failed with exit %d; want %d passed", got.passed, got.failed, got.exit, want.passed)
	for _, note := range got.notes {
		t.Log(note)
	}
}

// runCount is how often each pair runs in a row: once in `make test`, three
// times for the published results.
func runCount(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CONFORMANCE_RUNS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("CONFORMANCE_RUNS is %q", text)
	}
	return n
}
