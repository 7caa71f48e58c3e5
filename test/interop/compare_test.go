//go:build interop

package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// servePublic runs server-everything on a port and returns the URL of path.
func servePublic(t *testing.T, transport, path string) string {
	t.Helper()
	port := doortest.FreePort(t)
	argv := fixture.PublicEverything(t, transport)
	fixture.Serve(t, port, []string{fmt.Sprintf("PORT=%d", port)}, argv[0], argv[1:]...)
	return fmt.Sprintf("http://127.0.0.1:%d%s", port, path)
}

// request is a request that must have the same answer directly and through Doorward.
type request struct{ method, params string }

var (
	recorderRequests = []request{
		{"tools/list", `{}`},
		{"tools/call", `{"name":"exact","arguments":{}}`},
		{"tools/call", `{"name":"echo","arguments":{"big":9007199254740993,"one":1.0,"small":1e-7,"slash":"\/","z":1,"a":{"b":[]}}}`},
		{"tools/call", `{"name":"nothing","arguments":{}}`},
		{"vendor/echo", `{"later":{"n":1.50,"u":"\u00e9"}}`},
		{"vendor/unknown", `{}`},
	}
	fixtureRequests = []request{
		{"tools/call", `{"name":"test_simple_text","arguments":{}}`},
		{"tools/call", `{"name":"test_multiple_content_types","arguments":{}}`},
		{"tools/call", `{"name":"test_audio_content","arguments":{}}`},
		{"tools/call", `{"name":"test_error_handling","arguments":{}}`},
		{"tools/call", `{"name":"no_such_tool","arguments":{}}`},
		{"prompts/get", `{"name":"test_prompt_with_arguments","arguments":{"arg1":"x","arg2":"y"}}`},
		{"prompts/get", `{"name":"no_such_prompt"}`},
		{"resources/read", `{"uri":"test://static-binary"}`},
		{"resources/read", `{"uri":"test://template/7/data"}`},
		{"resources/read", `{"uri":"test://nowhere"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"test_prompt_with_arguments"},"argument":{"name":"arg1","value":"t"}}`},
	}
	lists              = []request{{"tools/list", `{}`}, {"prompts/list", `{}`}, {"resources/list", `{}`}, {"resources/templates/list", `{}`}}
	everythingRequests = []request{
		{"tools/call", `{"name":"echo","arguments":{"message":"häl\u2028lo 😀"}}`},
		{"tools/call", `{"name":"get-structured-content","arguments":{"location":"Chicago"}}`},
		{"tools/call", `{"name":"get-tiny-image","arguments":{}}`},
		{"tools/call", `{"name":"get-annotated-message","arguments":{"messageType":"error","includeImage":true}}`},
		{"tools/call", `{"name":"echo","arguments":{"message":17}}`},
		{"prompts/get", `{"name":"args-prompt","arguments":{"city":"Bern"}}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":""}}`},
	}
)

// TestSameBytes: where both sides speak one era, results and errors through Doorward are
// the same bytes as the server's own.
func TestSameBytes(t *testing.T) {
	h := upstreams(t)
	d := h.start(t)
	url := func(name string) string { return h.servers[name].URL }
	env := os.Environ()
	for _, c := range []struct {
		name, server string
		modern       bool
		direct       func(t *testing.T) peer
		requests     []request
	}{
		{"recorder", "recorder", false, func(t *testing.T) peer { return dialPipe(t, fixture.Recorder(t, "legacy"), env, false) }, recorderRequests},
		{"modern recorder", "recordermodern", true, func(t *testing.T) peer { return dialPipe(t, fixture.Recorder(t, "modern"), env, true) }, recorderRequests[1:]},
		{"stdio fixture", "fixture", false, func(t *testing.T) peer { return dialPipe(t, []string{fixture.Everything(t)}, env, false) }, append(lists, fixtureRequests...)},
		{"modern stdio fixture", "fixture", true, func(t *testing.T) peer { return dialPipe(t, []string{fixture.Everything(t)}, env, true) }, fixtureRequests},
		{"stateful fixture", "stateful", false, func(t *testing.T) peer { return dialWeb(t, url("stateful"), false) }, append(lists, fixtureRequests...)},
		{"stateless fixture", "stateless", true, func(t *testing.T) peer { return dialWeb(t, url("stateless"), true) }, fixtureRequests},
		{"server-everything", "everything", false, func(t *testing.T) peer { return dialPipe(t, fixture.PublicEverything(t, "stdio"), env, false) }, append(lists, everythingRequests...)},
		{"server-everything http", "everythinghttp", false, func(t *testing.T) peer { return dialWeb(t, url("everythinghttp"), false) }, append(lists, everythingRequests...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			direct := c.direct(t)
			doors := map[string]peer{
				"http":    dialWeb(t, d.MCP(c.server), c.modern),
				"connect": dialPipe(t, []string{d.Bin, "connect", c.server}, d.Env(), c.modern),
			}
			for _, r := range c.requests {
				wantResult, wantError := direct.call(t, r.method, r.params)
				for door, through := range doors {
					gotResult, gotError := through.call(t, r.method, r.params)
					same(t, door+": result of "+r.method+" "+r.params, gotResult, wantResult)
					same(t, door+": error of "+r.method+" "+r.params, gotError, wantError)
				}
			}
		})
	}
}

// TestSameLists: modern lists through Doorward are the server's own, except for the
// caching hints, which a gateway may add or lower.
func TestSameLists(t *testing.T) {
	h := upstreams(t)
	d := h.start(t)
	direct, through := dialWeb(t, h.servers["stateless"].URL, true), dialWeb(t, d.MCP("stateless"), true)
	for _, r := range lists {
		want, _ := direct.call(t, r.method, r.params)
		got, rpcError := through.call(t, r.method, r.params)
		if rpcError != nil {
			t.Errorf("%s: %s", r.method, rpcError)
			continue
		}
		if diff := cmp.Diff(unhinted(t, want), unhinted(t, got)); diff != "" {
			t.Errorf("%s differs, -want +got:\n%s", r.method, diff)
		}
	}
}

func unhinted(t *testing.T, result json.RawMessage) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(result, &m); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	delete(m, "ttlMs")
	delete(m, "cacheScope")
	return m
}

// same fails the test unless the bytes are equal. Servers that answer over SSE or in
// lines write compact JSON, so white space is the same too.
func same(t *testing.T, what string, got, want json.RawMessage) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	t.Errorf("%s differs at byte %d:\n got %s\nwant %s", what, at, excerpt(got, at), excerpt(want, at))
}

func excerpt(text []byte, at int) []byte {
	return text[max(0, at-60):min(len(text), at+120)]
}
