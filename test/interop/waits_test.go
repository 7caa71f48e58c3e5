//go:build interop && waits

package interop

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// longest bounds the measurement of one client.
const longest = 305 * time.Second

// TestHowLongClientsWait measures how long each client waits for the answer of a call, with
// its own settings: of a call that Doorward holds, with progress, and of a call that a server
// answers late, without. The table of docs/approvals.md is its output. It sets no bounds.
func TestHowLongClientsWait(t *testing.T) {
	recorder := fixture.Recorder(t, "legacy")
	servers := house{servers: map[string]server{"held": stdio(recorder, map[string]any{"tools": map[string]any{"ask": words("echo")}}),
		"late": stdio(recorder, map[string]any{"timeout": "20m"})}}
	d := doortest.Start(t, strings.Replace(servers.yaml(t), "{", `{"approvals":{"wait":"20m"},`, 1), doortest.Options{})
	for name, a := range fixture.Agents() {
		for _, transport := range words("connect http") {
			for server, call := range map[string]fixture.Answer{
				"held": fixture.Use(a.Prefix+"echo", nil), "late": fixture.Use(a.Prefix+"wait", map[string]any{"ms": 900000}),
			} {
				t.Run(strings.Join([]string{name, transport, server}, "/"), func(t *testing.T) {
					t.Parallel()
					waited, end := waits(t, a, doorAt(d, transport, server), call)
					t.Logf("measured: %s over %s, %s: %.0f s, then %s", name, transport, server, waited.Seconds(), end)
				})
			}
		}
	}
}

// waits makes a program call a tool and measures until it tells its model of the end.
func waits(t *testing.T, a fixture.Agent, e fixture.Entry, call fixture.Answer) (time.Duration, string) {
	t.Helper()
	var mu sync.Mutex // the model answers in goroutines of its own
	var began time.Time
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end, waited := "no end", longest
	m := fixture.NewModel(t,
		func(fixture.Talk) fixture.Answer { return fixture.Use(a.Prefix+"seen", nil) },
		func(talk fixture.Talk) fixture.Answer {
			t.Logf("asks for progress: %t", strings.Contains(talk.Results[0].Text, "progressToken"))
			mu.Lock()
			defer mu.Unlock()
			began = time.Now()
			time.AfterFunc(longest, cancel)
			return call
		},
		func(talk fixture.Talk) fixture.Answer {
			mu.Lock()
			defer mu.Unlock()
			end, waited = fmt.Sprintf("%+v", talk.Results), time.Since(began)
			return fixture.Say("done")
		})
	cmd := a.Command(ctx, t, m, t.TempDir(), e)
	out, err := cmd.CombinedOutput()
	if ctx.Err() == nil && (err != nil || len(m.Talks()) < 3) {
		t.Errorf("%s: %v\n%s", a.Name, err, out)
	}
	mu.Lock()
	defer mu.Unlock()
	return waited, end
}
