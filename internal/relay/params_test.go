package relay

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/offer"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/trust/wire"
)

// annotated is a tool whose parameters have headers of all kinds.
const annotated = `{"name":"t","inputSchema":{"type":"object","properties":{` +
	`"region":{"type":"string","x-mcp-header":"Region"},` +
	`"count":{"type":"integer","x-mcp-header":"count"},` +
	`"dry":{"type":"boolean","x-mcp-header":"Dry-Run"},` +
	`"deep":{"type":"object","properties":{"x-mcp-header":{"type":"string","x-mcp-header":"Deep"}}},` +
	`"free":{"type":"number"}}}}`

// Doorward checks the headers of a call that the tool's schema asks for,
// because it serves the schema of any server over HTTP.
func TestParamHeadersAreValidated(t *testing.T) {
	t.Parallel()
	for _, server := range []struct {
		kind, era string
	}{{"stdio", "modern"}, {"stdio", "legacy"}, {"http", "modern"}} {
		t.Run(server.kind+" "+server.era, func(t *testing.T) {
			t.Parallel()
			s := transports[server.kind](t, "s", server.era)
			s.setList("tools/list", `{"tools":[`+annotated+`]}`)
			m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
			for _, c := range []struct {
				name, args string
				header     []string
				ok         bool
			}{
				{"all there", `"region":"eu","count":7,"dry":true`, []string{"Region", "eu", "Count", "7", "Dry-Run", "true"}, true},
				{"none needed", `"free":1.5`, nil, true},
				{"missing", `"region":"eu"`, nil, false},
				{"wrong", `"region":"eu"`, []string{"Region", "us"}, false},
				{"other case", `"region":"eu"`, []string{"Region", "EU"}, false},
				{"header without a parameter", ``, []string{"Region", "eu"}, false},
				{"null is absent", `"region":null`, nil, true},
				{"null and a header", `"region":null`, []string{"Region", "null"}, false},
				{"empty", `"region":""`, []string{"Region", ""}, true},
				{"base64", `"region":"Hello"`, []string{"Region", "=?base64?SGVsbG8=?="}, true},
				{"bad base64", `"region":"Hello"`, []string{"Region", "=?base64?SGVsbG8?="}, false},
				{"garbage base64", `"region":"Hello"`, []string{"Region", "=?base64?SGVs!!!bG8=?="}, false},
				{"a literal that looks like base64", `"region":"SGVsbG8="`, []string{"Region", "SGVsbG8="}, true},
				{"an open sentinel is a literal", `"region":"=?base64?SGVsbG8="`, []string{"Region", "=?base64?SGVsbG8="}, true},
				{"not ASCII", `"region":"é\n"`, []string{"Region", protocol.EncodeHeader("é\n")}, true},
				{"an integer by value", `"count":7.0`, []string{"Count", "7"}, true},
				{"an exponent", `"count":1e2`, []string{"Count", "100"}, true},
				{"another integer", `"count":8`, []string{"Count", "7"}, false},
				{"beyond 2^53 only by its text", `"count":9007199254740993`, []string{"Count", "9007199254740992"}, false},
				{"beyond 2^53 the same text", `"count":9007199254740993`, []string{"Count", "9007199254740993"}, true},
				{"not a number", `"count":7`, []string{"Count", "seven"}, false},
				{"a boolean by its text", `"dry":true`, []string{"Dry-Run", "True"}, false},
				{"deep, by the name of a keyword", `"deep":{"x-mcp-header":"v"}`, []string{"Deep", "v"}, true},
				{"deep and missing", `"deep":{"x-mcp-header":"v"}`, nil, false},
				{"a header that no schema names", ``, []string{"Other", "x"}, true},
			} {
				var header []string
				for i, v := range c.header {
					if i%2 == 0 {
						v = "Mcp-Param-" + v
					}
					header = append(header, v)
				}
				before := len(s.got("tools/call"))
				r := m.begin("tools/call", `{"name":"t","arguments":{`+c.args+`}}`, header...)
				end := r.end()
				ran := len(s.got("tools/call")) > before
				if c.ok != (r.status == 200) || c.ok != ran || !c.ok && (r.status != 400 || code(end) != "-32020") {
					t.Errorf("%s: %d %s, ran %v", c.name, r.status, end, ran)
				}
			}
			equal(t, "the schema was fetched once", fmt.Sprint(len(s.got("tools/list"))), "1")
		})
	}
}

// Headers for params to a modern HTTP server are made from the outgoing body.
// Unknown ones of this kind pass, and no other header does.
func TestParamHeadersAreRecomputed(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.setList("tools/list", `{"tools":[`+annotated+`]}`)
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/s", "uid:1000")
	m.tool("t", `"region":" é ","count":1e2,"dry":false`, "Mcp-Param-Region", protocol.EncodeHeader(" é "), "Mcp-Param-Count", "100",
		"Mcp-Param-Dry-Run", "false", "Mcp-Param-Other", "x", "X-Secret", "y", "Cookie", "a=b", "Forwarded", "for=1.2.3.4")
	got := s.last("tools/call").header
	for k, want := range map[string]string{"Mcp-Param-Region": protocol.EncodeHeader(" é "), "Mcp-Param-Count": "1e2", "Mcp-Param-Dry-Run": "false", "Mcp-Param-Other": "x", "Mcp-Name": "t"} {
		equal(t, k, strings.Join(got[k], "|"), want)
	}
	for _, k := range []string{"X-Secret", "Cookie", "Forwarded", "Who", "Scope", "Authorization"} {
		if got[k] != nil {
			t.Errorf("%s reached the server", k)
		}
	}
	h.legacy("/mcp/s", "uid:1000", `{}`).tool("t", `"region":"eu"`)
	equal(t, "for a legacy client", strings.Join(s.last("tools/call").header["Mcp-Param-Region"], "|"), "eu")
	h.modern("/mcp", "uid:1000").tool("s__t", `"region":"eu"`, "Mcp-Param-Region", "eu")
	equal(t, "on the aggregate", strings.Join(s.last("tools/call").header["Mcp-Name"], "|"), "t")
}

// A client of `doorward connect` needs no headers for params, because it speaks
// stdio. A server that wants them gets them from Doorward, and a wrong one is
// refused.
func TestStdioClientsNeedNoParamHeaders(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"stdio", "http"} {
		s := transports[kind](t, "s", "modern")
		s.setList("tools/list", `{"tools":[`+annotated+`]}`)
		m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
		equal(t, kind, code(m.tool("t", `"region":"eu"`, "Doorward-Stdio", "1")), "")
		if got := s.last("tools/call").header["Mcp-Param-Region"]; kind == "http" && join(got) != "eu" {
			t.Errorf("the server got %s", got)
		}
		equal(t, kind+", wrong all the same", code(m.tool("t", `"region":"eu"`, "Doorward-Stdio", "1", "Mcp-Param-Region", "us")), "-32020")
	}
}

// A tool whose annotations are invalid is offered by a stdio server, but not
// by an HTTP server, and then it cannot be called either.
func TestInvalidAnnotations(t *testing.T) {
	t.Parallel()
	const list = `{"tools":[{"name":"good"},{"name":"bad","inputSchema":{"properties":{"n":{"type":"number","x-mcp-header":"N"}}}}]}`
	for kind, want := range map[string]string{"stdio": "good bad", "http": "good"} {
		s := transports[kind](t, "s", "modern")
		s.setList("tools/list", list)
		m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
		equal(t, kind, join(names(m.call("tools/list", `{}`), "tools", "name")), want)
		got := field(m.tool("bad", `"n":1`), "error")
		if kind == "http" {
			equal(t, "a call", got, `{"code":-32602,"message":"Unknown tool"}`)
		} else {
			equal(t, "a call", got, "")
		}
	}
	wrap := func(props string) []byte {
		return []byte(`{"inputSchema":{"type":"object","properties":{` + props + `}}}`)
	}
	ok := `"type":"string","x-mcp-header":"A"`
	for name, c := range map[string]struct {
		tool   []byte
		broken bool
	}{
		"none":                    {[]byte(`{"name":"x"}`), false},
		"good":                    {wrap(`"a":{` + ok + `}`), false},
		"in a default":            {wrap(`"a":{"type":"object","default":{"x-mcp-header":"A"}}`), false},
		"a property of that name": {wrap(`"x-mcp-header":{"type":"number"}`), false},
		"number":                  {wrap(`"a":{"type":"number","x-mcp-header":"A"}`), true},
		"no type":                 {wrap(`"a":{"x-mcp-header":"A"}`), true},
		"two types":               {wrap(`"a":{"type":["string","null"],"x-mcp-header":"A"}`), true},
		"object":                  {wrap(`"a":{"type":"object","x-mcp-header":"A"}`), true},
		"empty":                   {wrap(`"a":{"type":"string","x-mcp-header":""}`), true},
		"no text":                 {wrap(`"a":{"type":"string","x-mcp-header":7}`), true},
		"no token":                {wrap(`"a":{"type":"string","x-mcp-header":"a b"}`), true},
		"line break":              {wrap(`"a":{"type":"string","x-mcp-header":"a\r\nb"}`), true},
		"twice":                   {wrap(`"a":{` + ok + `},"b":{"type":"string","x-mcp-header":"a"}`), true},
		"in items":                {wrap(`"a":{"type":"array","items":{` + ok + `}}`), true},
		"in anyOf":                {wrap(`"a":{"anyOf":[{"properties":{"b":{` + ok + `}}}]}`), true},
		"in $defs":                {[]byte(`{"inputSchema":{"$defs":{"d":{` + ok + `}}}}`), true},
		"under additional":        {[]byte(`{"inputSchema":{"additionalProperties":{` + ok + `}}}`), true},
		"at the root":             {[]byte(`{"inputSchema":{` + ok + `}}`), true},
	} {
		if got := paramheader.Of(c.tool).Broken; got != c.broken {
			t.Errorf("%s: broken %v", name, got)
		}
	}
}

// A changed schema is noticed by list_changed, by a list that passes, and by a
// server that refuses the headers; the refused call is sent once more.
func TestChangedSchema(t *testing.T) {
	t.Parallel()
	t.Run("by list_changed", func(t *testing.T) {
		t.Parallel()
		s := stdio(t, "s", "legacy")
		h := build(t, []Server{s.server()})
		m := h.modern("/mcp/s", "uid:1000")
		m.tool("t", `"region":"eu"`)
		s.setList("tools/list", `{"tools":[`+annotated+`]}`)
		r, _ := m.subscribe(`{"toolsListChanged":true}`)
		s.change(protocol.ToolsChanged, `{}`)
		r.next()
		equal(t, "missing header", code(m.tool("t", `"region":"eu"`)), "-32020")
	})
	t.Run("by a list", func(t *testing.T) {
		t.Parallel()
		s := stdio(t, "s", "legacy")
		m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
		m.tool("t", `"region":"eu"`)
		s.setList("tools/list", `{"tools":[`+annotated+`]}`)
		m.call("tools/list", `{}`)
		equal(t, "missing header", code(m.tool("t", `"region":"eu"`)), "-32020")
	})
	t.Run("by a refusal", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "modern")
		ran := 0
		s.serve = func(q *query) {
			if len(q.header["Mcp-Param-Region"]) == 0 {
				q.fail(-32020, "header missing")
				return
			}
			ran++
			q.result(`{"resultType":"complete"}`)
		}
		s.setList("tools/list", `{"tools":[{"name":"t"}]}`)
		h := build(t, []Server{s.server()})
		m, c := h.modern("/mcp/s", "uid:1000"), h.legacy("/mcp/s", "uid:1000", `{}`)
		m.call("tools/list", `{}`)
		s.setList("tools/list", `{"tools":[`+annotated+`]}`)
		equal(t, "a client without headers", code(c.tool("t", `"region":"eu"`)), "")
		equal(t, "a client that knows the new schema", code(m.tool("t", `"region":"eu"`, "Mcp-Param-Region", "eu")), "")
		equal(t, "each ran once, one was refused before", fmt.Sprint(ran, len(s.got("tools/call"))), "2 3")
		s.setList("tools/list", `{"tools":[{"name":"u"}]}`)
		equal(t, "a server that is never content", code(m.tool("u", ``)), "-32020")
		equal(t, "is asked twice", fmt.Sprint(len(s.got("tools/call"))), "5")
	})
}

// A call to a server whose tool list never ends is answered, after at most
// offer.MaxPages pages.
func TestEndlessToolList(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.setList("tools/list", "")
	s.serve = func(q *query) {
		if q.Method == "tools/list" {
			q.result(`{"tools":[],"nextCursor":"more"}`)
			return
		}
		q.result(`{"resultType":"complete"}`)
	}
	m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
	equal(t, "call", code(m.tool("t", ``)), "")
	m.tool("t", ``)
	if n := len(s.got("tools/list")); n != offer.MaxPages {
		t.Errorf("%d pages", n)
	}
}

// A list that was requested before a change is not learned as the state after
// it.
func TestLearningAcrossAChange(t *testing.T) {
	t.Parallel()
	var p paramheader.Table
	before := p.Learn(nil, []byte(`[{"name":"a"}]`), false)
	p.Forget()
	p.Learn(before, []byte(`[`+annotated+`]`), true)
	if _, known := p.Now().Of("t"); known {
		t.Error("a list of the past was learnt")
	}
	set := p.Learn(nil, []byte(`[`+annotated+`]`), true)
	if h, known := set.Of("t"); !known || len(h.Params) != 4 {
		t.Errorf("%+v", h)
	}
	if _, known := set.Of("other"); !known {
		t.Error("a complete list leaves nothing unknown")
	}
}

func FuzzHeadersOf(f *testing.F) {
	f.Add(annotated, `{"region":"eu"}`)
	f.Fuzz(func(t *testing.T, tool, args string) {
		if wire.ValidateValue([]byte(tool)) != nil || wire.ValidateValue([]byte(args)) != nil {
			return
		}
		h := paramheader.Of([]byte(tool))
		header := make(http.Header)
		for _, p := range h.Params {
			if !paramheader.IsToken(p.Key) || http.CanonicalHeaderKey(p.Key) != p.Key {
				t.Errorf("%q is no header", p.Key)
			}
			if text, ok := paramheader.Text(rawjson.GetPath([]byte(args), p.Path...)); ok {
				header[p.Key] = []string{protocol.EncodeHeader(text)}
			}
		}
		if !paramheader.Match(header, h.Params, []byte(args)) {
			t.Errorf("the headers made for %s do not match it", args)
		}
	})
}
