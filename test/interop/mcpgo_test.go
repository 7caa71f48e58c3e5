//go:build interop

package interop

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/doorward/doorward/test/fixture"
)

// mcpGoSteps are the steps of test/mcpgo.
var mcpGoSteps = words(`tools call errors parallel progress logging prompts resources elicitation sampling`)

// racing are steps that a server of mcp-go 1.2.1 completes only sometimes: it writes a
// notification and the answer of its call in either order, and may lose the last
// notification.
var racing = words("progress logging quiet subscribe changes")

// outcomes are the reports of a client's steps: empty for success, otherwise the failure.
func outcomes(t *testing.T, name string, args ...string) map[string]string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = fixture.ClientEnv(t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // a step that failed is in the report
	all := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var r struct {
			Step, Error string
			OK          bool
		}
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("%v in %q\n%s", err, out, stderr.String())
		}
		if all[r.Step] = r.Error; !r.OK && r.Error == "" {
			all[r.Step] = "failed"
		}
	}
	return all
}

// meetsMCPGo runs the steps of a spec with a client of mcp-go.
func (s spec) meetsMCPGo(t *testing.T) map[string]string {
	t.Helper()
	return outcomes(t, fixture.MCPGo(t), s.argument(t))
}

// meetsSuite runs the steps of a spec with a client of the TypeScript SDK.
func (s spec) meetsSuite(t *testing.T) map[string]string {
	t.Helper()
	return outcomes(t, fixture.Node(t), fixture.Suite(t), s.argument(t))
}

func (s spec) argument(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(s)
	must(t, err)
	return string(text)
}

// allSucceed runs the steps and fails the test unless all succeed.
func (s spec) allSucceed(t *testing.T, steps []string, meets func(spec, *testing.T) map[string]string) {
	t.Helper()
	s.Steps = steps
	all := meets(s, t)
	for _, step := range steps {
		if failed, ran := all[step]; failed != "" || !ran {
			t.Errorf("%s%s, step %s: %q", s.URL, s.Command, step, failed)
		}
	}
}

// succeed are the steps that succeeded.
func succeed(all map[string]string) (steps []string) {
	for step, failed := range all {
		if failed == "" {
			steps = append(steps, step)
		}
	}
	return steps
}

// TestMCPGo: each step that a client of mcp-go completes directly with a server, it
// completes through Doorward. The same holds for a client of the TypeScript SDK and a server
// of mcp-go. A client of mcp-go that detects the era cannot connect to go-sdk's stateful
// server, and completes all steps through Doorward.
func TestMCPGo(t *testing.T) {
	mcpgo := fixture.ServeMCPGo(t)
	urls := map[string]string{
		"mcpgo":  mcpgo,
		"legacy": fixture.ServeEverything(t, fixture.Everything(t), true),
		"modern": fixture.ServeEverything(t, fixture.Everything(t), false),
	}
	servers := house{servers: map[string]server{}}
	for name, url := range urls {
		servers.servers[name] = remote("http", url, nil)
	}
	d := servers.start(t)
	for name, url := range urls {
		for _, era := range words("legacy any") {
			t.Run("client of mcp-go/"+name+"/"+era, func(t *testing.T) {
				t.Parallel()
				steps := mcpGoSteps
				if name == "mcpgo" {
					steps = without(steps, racing...)
				}
				direct := succeed(spec{Transport: "http", URL: url, Era: era, Steps: steps}.meetsMCPGo(t))
				t.Logf("%d of %d steps succeed directly", len(direct), len(steps))
				if name == "legacy" && len(direct) == 0 { // the client cannot connect
					direct = mcpGoSteps
				}
				if len(direct) < 6 {
					t.Errorf("directly: %v", direct)
				}
				spec{Transport: "http", URL: d.MCP(name), Era: era}.allSucceed(t, direct, spec.meetsMCPGo)
				spec{Transport: "http", URL: d.MCP(""), Prefix: name + "__", Era: era}.allSucceed(t, direct, spec.meetsMCPGo)
				command(d.Command("connect", name).Args, spec{Era: era, Env: fixture.EnvMap(d.Env())}).allSucceed(t, direct, spec.meetsMCPGo)
			})
		}
	}
	for name, s := range map[string]spec{
		"v1": {SDK: "v1", Steps: legacySteps}, "v2 legacy": {SDK: "v2", Era: "legacy", Steps: legacySteps}, "v2 auto": {SDK: "v2", Era: "auto", Steps: modernSteps},
	} {
		t.Run("server of mcp-go/"+name, func(t *testing.T) {
			t.Parallel()
			s.Transport, s.URL, s.Sampling, s.Steps = "http", mcpgo, true, without(s.Steps, racing...)
			direct := succeed(s.meetsSuite(t))
			t.Logf("%d of %d steps succeed directly", len(direct), len(s.Steps))
			if len(direct) < 5 {
				t.Errorf("directly: %v", direct)
			}
			one, all := s, s
			one.URL, all.URL, all.Prefix = d.MCP("mcpgo"), d.MCP(""), "mcpgo__"
			one.allSucceed(t, direct, spec.meetsSuite)
			all.allSucceed(t, without(direct, "resources"), spec.meetsSuite) // that step uses the server's own URI, which the aggregate does not have
		})
	}
}
