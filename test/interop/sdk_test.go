//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// The steps that a server supports, by the era of the client.
var (
	legacySteps = words(`identity tools call errors parallel progress logging prompts resources subscribe
		changes completion elicitation declined sampling reconnection`)
	modernSteps = words(`identity tools call errors parallel progress logging quiet prompts resources subscribe
		changes completion elicitation sampling rounds`)
	everythingSteps = words(`everything-tools everything-offers everything-progress everything-elicitation`)
	recorderSteps   = words(`cancel questions arguments unknown ordered`)
)

// spec is the argument of test/clients/suite.mjs, which documents it.
type spec struct {
	SDK       string            `json:"sdk"`
	Era       string            `json:"era"`
	Transport string            `json:"transport"`
	URL       string            `json:"url,omitempty"`
	Command   string            `json:"command,omitempty"`
	Args      []string          `json:"args,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Steps     []string          `json:"steps"`
	Version   string            `json:"version,omitempty"`
	Prefix    string            `json:"prefix,omitempty"`
	Label     string            `json:"label,omitempty"`
	Sampling  bool              `json:"sampling"`
	Folder    string            `json:"folder,omitempty"`
}

// run executes the steps and makes each of them a subtest.
func (s spec) run(t *testing.T) {
	t.Helper()
	if s.Era == "" {
		s.Era = "legacy"
	}
	argument, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fixture.Node(t), fixture.Suite(t), string(argument))
	cmd.Env = fixture.ClientEnv(t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	reported := 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); reported++ {
		var report struct {
			Step, Error string
			OK          bool
		}
		if err := json.Unmarshal(lines.Bytes(), &report); err != nil {
			t.Fatalf("the suite printed %q", lines.Text())
		}
		t.Run(report.Step, func(t *testing.T) {
			if !report.OK {
				t.Error(report.Error)
			}
		})
	}
	if reported != len(s.Steps) || (err != nil && !t.Failed()) {
		t.Errorf("%d of %d steps reported, %v", reported, len(s.Steps), err)
	}
	if t.Failed() {
		t.Logf("stderr of the client:\n%s", stderr.String())
	}
}

func command(argv []string, s spec) spec {
	s.Transport, s.Command, s.Args = "stdio", argv[0], argv[1:]
	return s
}

// TestDirect: every client completes its steps with its server alone. This proves the
// harness.
func TestDirect(t *testing.T) {
	folder := t.TempDir()
	legacy := fixture.ServeEverything(t, fixture.ResumableEverything(t), true)
	modern := fixture.ServeEverything(t, fixture.Everything(t), false)
	for name, s := range map[string]spec{
		"v1 http":              {SDK: "v1", Transport: "http", URL: legacy, Version: "2025-11-25", Steps: legacySteps},
		"v2 legacy http":       {SDK: "v2", Transport: "http", URL: legacy, Version: "2025-11-25", Steps: legacySteps},
		"v2 modern http":       {SDK: "v2", Era: "modern", Transport: "http", URL: modern, Version: "2026-07-28", Steps: modernSteps},
		"v1 recorder":          command(fixture.Recorder(t, "legacy"), spec{SDK: "v1", Steps: recorderSteps}),
		"v2 modern recorder":   command(fixture.Recorder(t, "modern"), spec{SDK: "v2", Era: "modern", Steps: recorderSteps}),
		"v1 server-everything": command(fixture.PublicEverything(t, "stdio"), spec{SDK: "v1", Steps: everythingSteps}),
		"v2 server-filesystem": command(fixture.Filesystem(t, folder), spec{SDK: "v2", Era: "auto", Steps: words("files"), Folder: folder}),
	} {
		s.Sampling = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

// visit is one client at one of Doorward's endpoints.
type visit struct {
	name   string
	server string
	via    string // http, sse or connect
	spec
}

func (v visit) at(t *testing.T, d *doortest.Daemon) spec {
	t.Helper()
	s := v.spec
	if v.via != "connect" {
		s.Transport, s.URL = v.via, endpoint(d, v.via, v.server)
		return s
	}
	args := words("connect " + v.server)
	s = command(append([]string{d.Bin}, args...), s)
	s.Env = fixture.EnvMap(d.Env())
	return s
}

// upstreams is a house with all servers of the SDK tests.
func upstreams(t *testing.T) house {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	both := []string{fixture.Everything(t)}
	return house{folder: folder, servers: map[string]server{
		"fixture":        stdio(both, nil),
		"fixtureauto":    stdio(both, nil), // a server of its own: log messages on a connection that two callers share are delivered to neither
		"strict":         stdio(both, map[string]any{"ask": nil}),
		"pinnedlegacy":   stdio(both, map[string]any{"protocol": "legacy"}),
		"pinnedmodern":   stdio(both, map[string]any{"protocol": "modern"}),
		"stateful":       remote("http", fixture.ServeEverything(t, fixture.ResumableEverything(t), true), nil),
		"stateless":      remote("http", fixture.ServeEverything(t, fixture.Everything(t), false), nil),
		"recorder":       stdio(fixture.Recorder(t, "legacy"), nil),
		"recordermodern": stdio(fixture.Recorder(t, "modern"), nil),
		"everything":     stdio(fixture.PublicEverything(t, "stdio"), nil),
		"everythinghttp": remote("http", servePublic(t, "streamableHttp", "/mcp"), nil),
		"everythingsse":  remote("sse", servePublic(t, "sse", "/sse"), nil),
		"files":          stdio(fixture.Filesystem(t, folder), nil),
	}}
}

func without(steps []string, unwanted ...string) []string {
	var kept []string
next:
	for _, step := range steps {
		for _, u := range unwanted {
			if step == u {
				continue next
			}
		}
		kept = append(kept, step)
	}
	return kept
}

// TestSDK: clients of both SDKs, in each of their eras, complete their steps through each
// endpoint of Doorward.
func TestSDK(t *testing.T) {
	h := upstreams(t)
	d := h.start(t)
	const v11, v26 = "2025-11-25", "2026-07-28"
	visits := []visit{
		// Same era on both sides, each endpoint.
		{"v1 http", "fixture", "http", spec{SDK: "v1", Version: v11, Label: "fixture", Steps: legacySteps}},
		{"v1 connect", "fixture", "connect", spec{SDK: "v1", Label: "fixture", Steps: legacySteps}},
		{"v1 sse", "fixture", "sse", spec{SDK: "v1", Label: "fixture", Steps: legacySteps}},
		{"v2 legacy http", "fixture", "http", spec{SDK: "v2", Version: v11, Label: "fixture", Steps: legacySteps}},
		{"v2 legacy connect", "fixture", "connect", spec{SDK: "v2", Version: v11, Label: "fixture", Steps: legacySteps}},
		{"v2 legacy sse", "fixture", "sse", spec{SDK: "v2", Label: "fixture", Steps: legacySteps}},
		{"v2 modern http", "fixture", "http", spec{SDK: "v2", Era: "modern", Version: v26, Label: "fixture", Steps: modernSteps}},
		{"v2 auto http", "fixtureauto", "http", spec{SDK: "v2", Era: "auto", Version: v26, Label: "fixtureauto", Steps: modernSteps}},
		{"v2 auto connect", "fixture", "connect", spec{SDK: "v2", Era: "auto", Version: v26, Label: "fixture", Steps: modernSteps}},

		// Servers over HTTP, with a detected era.
		{"v1 http to http", "stateful", "http", spec{SDK: "v1", Version: v11, Label: "stateful", Steps: legacySteps}},
		{"v2 modern to http", "stateless", "http", spec{SDK: "v2", Era: "modern", Version: v26, Label: "stateless", Steps: modernSteps}},

		// Different eras. A legacy server does not name its questions, which the step rounds
		// needs, and as a modern server the fixture asks a legacy client nothing.
		{"v2 modern to legacy", "pinnedlegacy", "http", spec{SDK: "v2", Era: "modern", Version: v26, Label: "pinnedlegacy", Steps: without(modernSteps, "rounds")}},
		{"v1 to modern", "pinnedmodern", "http", spec{SDK: "v1", Version: v11, Steps: without(legacySteps, "elicitation", "declined", "sampling")}},

		// A cancellation, and two rounds of questions, in all four combinations of eras.
		{"v1 recorder", "recorder", "http", spec{SDK: "v1", Label: "recorder", Steps: recorderSteps}},
		{"v2 modern recorder", "recorder", "http", spec{SDK: "v2", Era: "modern", Label: "recorder", Steps: recorderSteps}},
		{"v1 modern recorder", "recordermodern", "http", spec{SDK: "v1", Label: "recordermodern", Steps: recorderSteps}},
		{"v2 modern to modern recorder", "recordermodern", "http", spec{SDK: "v2", Era: "modern", Label: "recordermodern", Steps: recorderSteps}},
		{"v1 connect recorder", "recorder", "connect", spec{SDK: "v1", Label: "recorder", Steps: recorderSteps}},
		{"v2 auto connect recorder", "recorder", "connect", spec{SDK: "v2", Era: "auto", Label: "recorder", Steps: recorderSteps}},
		{"v1 sse recorder", "recorder", "sse", spec{SDK: "v1", Label: "recorder", Steps: recorderSteps}},

		// The public servers, by each transport that they have.
		{"v1 server-everything", "everything", "http", spec{SDK: "v1", Label: "everything", Steps: everythingSteps}},
		{"v2 modern server-everything", "everything", "http", spec{SDK: "v2", Era: "modern", Label: "everything", Steps: everythingSteps}},
		{"v1 server-everything http", "everythinghttp", "http", spec{SDK: "v1", Label: "everythinghttp", Steps: everythingSteps}},
		{"v2 modern server-everything http", "everythinghttp", "http", spec{SDK: "v2", Era: "modern", Label: "everythinghttp", Steps: everythingSteps}},
		{"v1 server-everything sse", "everythingsse", "http", spec{SDK: "v1", Label: "everythingsse", Steps: everythingSteps}},
		{"v1 sse server-everything sse", "everythingsse", "sse", spec{SDK: "v1", Label: "everythingsse", Steps: everythingSteps}},
		{"v1 server-filesystem", "files", "http", spec{SDK: "v1", Folder: h.folder, Steps: words("files")}},
		{"v2 modern server-filesystem", "files", "http", spec{SDK: "v2", Era: "modern", Folder: h.folder, Steps: words("files")}},
	}
	for _, v := range visits {
		v.Sampling = true
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			v.at(t, d).run(t)
		})
	}
	// Without `ask` a server may ask the user, but may not use the user's model.
	for _, v := range []visit{
		{"v1 refused sampling", "strict", "http", spec{SDK: "v1", Steps: words("sampling elicitation")}},
		{"v2 modern refused sampling", "strict", "http", spec{SDK: "v2", Era: "modern", Steps: words("sampling elicitation")}},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			v.at(t, d).run(t)
		})
	}
}

// TestAggregate: clients complete their steps with four servers behind the aggregate, with
// prefixed names.
func TestAggregate(t *testing.T) {
	h := upstreams(t)
	h.servers = map[string]server{
		"fixture": h.servers["fixture"], "everything": h.servers["everything"], "recorder": h.servers["recorder"], "files": h.servers["files"],
	}
	d := h.start(t)
	listed(t, d, slices.Collect(maps.Keys(h.servers))) // a list does not wait for a program that starts slowly
	parts := map[string][]string{
		"fixture":    words("tools call errors parallel progress prompts completion changes sampling elicitation"),
		"everything": words("everything-tools everything-progress everything-elicitation"),
		"recorder":   words("arguments questions cancel unknown"),
		"files":      words("files"),
	}
	for name, steps := range parts {
		for _, v := range []visit{
			{"v1 " + name, "", "http", spec{SDK: "v1"}},
			{"v2 modern " + name, "", "http", spec{SDK: "v2", Era: "modern"}},
			{"v1 connect " + name, "", "connect", spec{SDK: "v1"}},
			{"v1 sse " + name, "", "sse", spec{SDK: "v1"}},
		} {
			v.Sampling, v.Prefix, v.Steps, v.Folder = true, prefixed(name), steps, h.folder
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				v.at(t, d).run(t)
			})
		}
	}
}
