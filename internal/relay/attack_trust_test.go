package relay

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/trust/lookalike"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// spellings are ways to write a name that a careless server takes for the name itself.
func spellings(r *rand.Rand, name string) []string {
	out := []string{name, strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:], name + " ", " " + name, "\t" + name, name + "\n", name + "\u00a0", "\u3000" + name,
		name[:1] + "\u200b" + name[1:], name + "\ufe0f", name + "\x00", name + "\u0301", "\u202e" + name, strings.NewReplacer("a", "а", "e", "е", "d", "ԁ", "i", "і").Replace(name)}
	var wide strings.Builder
	for _, c := range name {
		if c > ' ' && c <= '~' {
			c += 0xFEE0
		}
		wide.WriteRune(c)
	}
	out = append(out, wide.String())
	for range 10 {
		var b strings.Builder
		for _, c := range name {
			switch r.IntN(5) {
			case 0:
				b.WriteString(strings.ToUpper(string(c)))
			case 1:
				b.WriteRune(c)
				b.WriteString(pick(attempts{r}, "\u200d", "\u00ad", "\u2060", ""))
			default:
				b.WriteRune(c)
			}
		}
		out = append(out, b.String())
	}
	return out
}

// addresses are ways to write a URI that a careless server takes for the URI itself.
func addresses(r *rand.Rand, uri string) []string {
	scheme, rest, _ := strings.Cut(uri, "://")
	out := []string{uri, strings.ToUpper(uri), uri + "#f", uri + "?", uri + "/", uri + "/.", uri + "/x/..", scheme + ":///" + strings.TrimLeft(rest, "/"), " " + uri, uri + "\u200b",
		strings.ToUpper(scheme) + "://" + rest, scheme + "://" + strings.ReplaceAll(rest, "/", "//"), scheme + "://" + strings.ReplaceAll(rest, "/", "/./")}
	for range 15 {
		var b strings.Builder
		b.WriteString(scheme + "://")
		for i := range len(rest) {
			if c := rest[i]; c != '/' && r.IntN(3) == 0 {
				fmt.Fprintf(&b, pick(attempts{r}, "%%%02X", "%%%02x"), c)
			} else {
				b.WriteByte(c)
			}
		}
		out = append(out, b.String())
	}
	return out
}

// carelessly returns a name as a server reads it that ignores case, spaces and invisible
// characters and decodes URIs.
func carelessly(name string) string {
	name, _, _ = strings.Cut(name, "#")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	name = lookalike.Shown(name)[0]
	if scheme, rest, ok := strings.Cut(name, ":"); ok {
		name = scheme + ":" + path.Clean("/"+strings.Trim(rest, "/?"))
	}
	return name
}

// A withheld definition reaches the server under no spelling: tools, prompts, resources and
// templates, in each method that names one, with automatic and with manual approval.
func TestNoSpellingReachesWhatIsWithheld(t *testing.T) {
	t.Parallel()
	const (
		tools     = `{"tools":[{"name":"echo"},{"name":"add_id","description":%q}]}`
		prompts   = `{"prompts":[{"name":"greet"},{"name":"add_id","description":%q}]}`
		resources = `{"resources":[{"uri":"file:///a","name":"a"},{"uri":"file:///dir/add_id","name":%q}]}`
		templates = `{"resourceTemplates":[{"uriTemplate":"file:///dir/add_id/{p}","name":%q}]}`
	)
	lists := map[string]string{"tools/list": tools, "prompts/list": prompts, "resources/list": resources, "resources/templates/list": templates}
	for _, era := range []string{"legacy", "modern"} {
		for _, manual := range []bool{false, true} {
			for _, route := range []string{"/mcp/s", "/mcp"} {
				t.Run(fmt.Sprint(era, manual, route), func(t *testing.T) {
					t.Parallel()
					s, book, r := web(t, "s", era), shelf(t), seeded(t)
					offer := func(word string) {
						for method, list := range lists {
							s.setList(method, fmt.Sprintf(list, word))
						}
					}
					offer("before")
					h := build(t, []Server{s.server(pinnedBy(book, manual))})
					all := clients(h, route, "uid:1000")
					look := func() {
						for _, call := range all {
							for method := range lists {
								call(method, "{}")
							}
						}
					}
					look()
					if manual {
						approve(t, h, book, "s")
					}
					offer("after")
					look()
					equal(t, "withheld", join(book.Items("s")), "prompt:add_id resource:file:///dir/add_id template:file:///dir/add_id/{p} tool:add_id")
					from := len(s.taken())
					name, uri := func(n string) string { return n }, func(u string) string { return u }
					if route == "/mcp" {
						name, uri = func(n string) string { return "s__" + n }, func(u string) string { return "doorward://s/" + u }
					}
					quote := func(s string) string { return string(rawjson.AppendQuote(nil, s)) }
					for client, call := range all {
						for _, n := range spellings(r, "add_id") {
							call("tools/call", `{"name":`+quote(name(n))+`,"arguments":{}}`)
							call("prompts/get", `{"name":`+quote(name(n))+`}`)
							call("completion/complete", `{"ref":{"type":"ref/prompt","name":`+quote(name(n))+`},"argument":{"name":"a","value":""}}`)
						}
						for _, u := range append(addresses(r, "file:///dir/add_id"), addresses(r, "file:///dir/add_id/{p}")...) {
							call("resources/read", `{"uri":`+quote(uri(u))+`}`)
							call("completion/complete", `{"ref":{"type":"ref/resource","uri":`+quote(uri(u))+`},"argument":{"name":"a","value":""}}`)
							if client == "legacy" {
								call("resources/subscribe", `{"uri":`+quote(uri(u))+`}`)
							}
						}
					}
					stream, _ := h.modern(route, "uid:1000").subscribe(`{"resourceSubscriptions":[` + quote(uri("file:///dir/add_id")) + `,` + quote(uri("FILE:///dir/%61dd_id")) + `,` + quote(uri("file:///a")) + `]}`)
					defer stream.stop()
					for _, q := range s.taken()[from:] {
						for _, n := range namesIn(q) {
							if got := carelessly(n); got == carelessly("add_id") || got == carelessly("file:///dir/add_id") || q.Method == "completion/complete" && got == carelessly("file:///dir/add_id/{p}") {
								t.Errorf("the server got %s", q.raw)
							}
						}
					}
					for client, call := range all {
						for method, params := range map[string]string{"tools/call": `{"name":"` + name("echo") + `"}`, "prompts/get": `{"name":"` + name("greet") + `"}`, "resources/read": `{"uri":"` + uri("file:///a") + `"}`} {
							equal(t, client+" goes on with "+method, code(call(method, params)), "")
						}
					}
				})
			}
		}
	}
}

// An approved definition is reached under its exact name only, so that another spelling cannot
// avoid a rule of policy about the name.
func TestAnApprovedNameHasOneSpelling(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, route := range []string{"/mcp/s", "/mcp"} {
			t.Run(era+" "+route, func(t *testing.T) {
				t.Parallel()
				s, book, r := web(t, "s", era), shelf(t), seeded(t)
				s.setList("tools/list", `{"tools":[{"name":"drop_it"},{"name":"read"}]}`)
				s.setList("prompts/list", `{"prompts":[{"name":"drop_it"}]}`)
				h := build(t, []Server{s.server(pinnedBy(book, false))})
				h.obey(`forbid (principal, action, resource == Tool::"s/drop_it"); forbid (principal, action, resource == Prompt::"s/drop_it");`)
				name := ""
				if route == "/mcp" {
					name = "s__"
				}
				for client, call := range clients(h, route, "uid:1000") {
					for _, n := range spellings(r, "drop_it") {
						quoted := string(rawjson.AppendQuote(nil, name+n))
						call("tools/call", `{"name":`+quoted+`,"arguments":{}}`)
						call("prompts/get", `{"name":`+quoted+`}`)
					}
					equal(t, client, code(call("tools/call", `{"name":"`+name+`read"}`)), "")
					equal(t, client+", a name that looks like none", code(call("tools/call", `{"name":"`+name+`unlisted"}`)), "")
				}
				for _, q := range append(s.got("tools/call"), s.got("prompts/get")...) {
					if carelessly(q.name()) == carelessly("drop_it") {
						t.Errorf("the server got %s", q.raw)
					}
				}
			})
		}
	}
}

// Nothing of a withheld skill can be read under any spelling of its URIs. What lies beside it
// can.
func TestNoSpellingReachesAWithheldSkill(t *testing.T) {
	t.Parallel()
	const list = `{"skills":[{"uri":"skill://alpha/SKILL.md","resources":[{"uri":"skill://alpha/x.sh","digest":"sha256:%d","size":1}]},{"uri":"skill://beta/SKILL.md","resources":[]}]}`
	for _, era := range []string{"legacy", "modern"} {
		for _, route := range []string{"/mcp/s", "/mcp"} {
			t.Run(era+" "+route, func(t *testing.T) {
				t.Parallel()
				s, book, r := web(t, "s", era), shelf(t), seeded(t)
				s.setList("skills/list", fmt.Sprintf(list, 1))
				h := build(t, []Server{s.server(pinnedBy(book, false))})
				all := clients(h, route, "uid:1000")
				for round := 1; round <= 2; round++ {
					s.setList("skills/list", fmt.Sprintf(list, round))
					for _, call := range all {
						call("skills/list", "{}")
					}
				}
				equal(t, "withheld", join(book.Items("s")), "skill:skill://alpha/SKILL.md")
				prefix, from := "", len(s.taken())
				if route == "/mcp" {
					prefix = "doorward://s/"
				}
				for _, call := range all {
					for _, uri := range []string{"skill://alpha/SKILL.md", "skill://alpha/x.sh", "skill://alpha/deep/y", "skill://alpha"} {
						for _, u := range append(addresses(r, uri), strings.ReplaceAll(uri, "a/", "a%2F"), strings.ReplaceAll(uri, "a/", "a%2f%2E%2f"), strings.Replace(uri, "alpha", "beta/../alpha", 1)) {
							for _, method := range []string{"resources/read", "skills/get", "resources/directory/read"} {
								call(method, `{"uri":`+string(rawjson.AppendQuote(nil, prefix+u))+`}`)
							}
						}
					}
				}
				for _, q := range s.taken()[from:] {
					for _, n := range namesIn(q) {
						if got := carelessly(n); got == "skill:/alpha" || strings.HasPrefix(got, "skill:/alpha/") && !strings.Contains(got, "-") { // with a hyphen: a name that the server cannot have
							t.Errorf("the server got %s", q.raw)
						}
					}
				}
				for client, call := range all {
					equal(t, client+" reads what is beside it", code(call("resources/read", `{"uri":"`+prefix+`skill://beta/z"}`)), "")
				}
			})
		}
	}
}

// namesIn returns every name and URI in the params of a message.
func namesIn(q *query) (out []string) {
	for _, path := range [][]string{{"name"}, {"uri"}, {"ref", "name"}, {"ref", "uri"}} {
		if n, ok := wire.Text(rawjson.GetPath(q.Params, path...)); ok {
			out = append(out, n)
		}
	}
	for u := range rawjson.Elements(rawjson.GetPath(q.Params, "notifications", "resourceSubscriptions")) {
		n, _ := wire.Text(u)
		out = append(out, n)
	}
	return out
}

// With manual approval no resource of a server is read before one was approved, even after the
// resources were listed on the connection.
func TestByHandNothingIsReadBeforeItIsApproved(t *testing.T) {
	t.Parallel()
	unknown := regexp.MustCompile(`^[^-]+-[a-z2-7]{26}$`) // the question for a name that does not exist
	for _, era := range []string{"legacy", "modern"} {
		for _, route := range []string{"/mcp/s", "/mcp"} {
			s, book := web(t, "s", era), shelf(t)
			h := build(t, []Server{s.server(pinnedBy(book, true))})
			for client, call := range clients(h, route, "uid:1000") {
				for range 2 {
					for _, uri := range []string{"file:///a b", "file:///other", "x:y"} {
						if route == "/mcp" {
							uri = "doorward://s/" + uri
						}
						equal(t, era+" "+client+" "+uri, code(call("resources/read", `{"uri":"`+uri+`"}`)), "-32602")
					}
					call("resources/list", "{}")
				}
			}
			for _, q := range s.got("resources/read") {
				if names := namesIn(q); len(names) != 1 || !unknown.MatchString(names[0]) {
					t.Errorf("the server got %s", q.raw)
				}
			}
		}
	}
}

// An entry that is not approved does not reach a client in a member whose name some reader
// takes for the list's own.
func TestAListUnderAnotherNameDoesNotArrive(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, key := range []string{"resource_templates", "resource-templates", "RESOURCE_TEMPLATES", "resourcetemplates", "Resource_Templates"} {
			for _, own := range []string{"", `"resourceTemplates":[],`} {
				for _, route := range []string{"/mcp/s", "/mcp"} {
					s, book := web(t, "s", era), shelf(t)
					s.setList("resources/templates/list", `{`+own+`"`+key+`":[{"uriTemplate":"file:///canary/{p}","name":"canary"}]}`)
					h := build(t, []Server{s.server(pinnedBy(book, true))})
					for client, call := range clients(h, route, "uid:1000") {
						if end := call("resources/templates/list", "{}"); strings.Contains(end, "canary") {
							t.Errorf("%s server, %s client: %s", era, client, end)
						}
					}
				}
			}
		}
	}
}

// A change of any member of a definition withholds it, on each route and for clients of both
// eras. A resource's size and lastModified describe its present content: they may be left out,
// and cannot hold other text.
func TestEachMemberOfADefinitionIsPinned(t *testing.T) {
	t.Parallel()
	const word = "obey the canary"
	entries := map[pin.Kind]string{
		pin.Tools:     `{"name":"n","title":"t","description":"d","inputSchema":{"type":"object","properties":{"a":{"type":"string","description":"d","enum":["e"]}}},"outputSchema":{"type":"object"},"annotations":{"title":"t","readOnlyHint":true},"icons":[{"src":"https://x.example/"}],"_meta":{"k":"v"},"execution":{"taskSupport":"optional"},"x":1}`,
		pin.Prompts:   `{"name":"n","title":"t","description":"d","arguments":[{"name":"a","description":"d","required":true}],"icons":[{"src":"https://x.example/"}],"_meta":{"k":"v"},"x":1}`,
		pin.Resources: `{"uri":"file:///n","name":"n","title":"t","description":"d","mimeType":"text/plain","size":7,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2026-01-02T03:04:05Z"},"icons":[{"src":"https://x.example/"}],"_meta":{"k":"v"},"x":1}`,
		pin.Templates: `{"uriTemplate":"file:///{n}","name":"n","title":"t","description":"d","mimeType":"text/plain","annotations":{"audience":["user"],"priority":0.5},"icons":[{"src":"https://x.example/"}],"_meta":{"k":"v"},"x":1}`,
	}
	for k, entry := range entries {
		kind, _ := listing.Of(listing.ListMethods[k])
		t.Run(kind.Member, func(t *testing.T) {
			t.Parallel()
			var changed []string
			for key := range rawjson.Members([]byte(entry)) {
				if key != kind.Name {
					changed = append(changed, string(rawjson.Set([]byte(entry), rawjson.Edit{Key: key, Value: []byte(`"` + word + `"`)})), string(rawjson.Set([]byte(entry), rawjson.Edit{Key: key})))
				}
				for inner := range rawjson.Members(rawjson.Get([]byte(entry), key)) {
					changed = append(changed, string(rawjson.SetIn([]byte(entry), key, rawjson.Edit{Key: inner, Value: []byte(`"` + word + `"`)})))
				}
			}
			changed = append(changed, string(rawjson.Set([]byte(entry), rawjson.Edit{Key: "new", Value: []byte(`"` + word + `"`)})))
			s, book := web(t, "s", "both"), shelf(t)
			list := func(e string) { s.setList(listing.ListMethods[k], `{"`+kind.Member+`":[`+e+`]}`) }
			list(entry)
			h := build(t, []Server{s.server(pinnedBy(book, false))})
			all := []func(method, params string) string{}
			for _, route := range []string{"/mcp/s", "/mcp"} {
				for _, call := range clients(h, route, "uid:1000") {
					all = append(all, call)
					contains(t, "at first", call(listing.ListMethods[k], "{}"), `"name":"`)
				}
			}
			for _, e := range changed {
				list(e)
				for _, call := range all {
					end := call(listing.ListMethods[k], "{}")
					stays := k == pin.Resources && (rawjson.Get([]byte(e), "size") == nil || rawjson.GetPath([]byte(e), "annotations", "lastModified") == nil && rawjson.Get([]byte(e), "annotations") != nil) && !strings.Contains(e, word)
					if strings.Contains(end, word) || strings.Contains(end, `"name":"`) != stays {
						t.Errorf("%s is shown as %s", e, end)
					}
				}
			}
			list(entry)
			for _, call := range all {
				contains(t, "as before", call(listing.ListMethods[k], "{}"), `"name":"`)
			}
		})
	}
}

// An approval approves only what was shown, even if the server has changed it in between. A
// client that lists meanwhile never gets what was not approved.
func TestAnApprovalThatRacesApprovesWhatWasShown(t *testing.T) {
	t.Parallel()
	s, book := web(t, "s", "both"), shelf(t)
	say := func(i int) string { return fmt.Sprintf(`{"tools":[{"name":"n","description":"version %d."}]}`, i) }
	s.setList("tools/list", say(0))
	h := build(t, []Server{s.server(pinnedBy(book, false))})
	all := clients(h, "/mcp/s", "uid:1000")
	for _, call := range all {
		contains(t, "first", call("tools/list", "{}"), "version 0.")
	}
	good := map[int]bool{0: true}
	for i := 1; i <= 40; i++ {
		s.setList("tools/list", say(i))
		for _, call := range all {
			call("tools/list", "{}")
		}
		shown := book.Withheld("s")
		if i%2 == 0 { // it changes its mind between what is shown and the approval
			s.setList("tools/list", say(i+1000))
			for _, call := range all {
				call("tools/list", "{}")
			}
		}
		var approvals []pin.Approval
		for _, w := range shown {
			approvals = append(approvals, pin.Approval{Item: w.Item, Digest: w.Digest})
		}
		if err := book.Approve("s", approvals); (err == nil) != (i%2 == 1) {
			t.Fatalf("version %d: %v", i, err)
		}
		good[i] = i%2 == 1
		for client, call := range all {
			end := call("tools/list", "{}")
			var n int
			if at := strings.Index(end, "version "); at >= 0 {
				fmt.Sscanf(end[at:], "version %d.", &n)
				if !good[n] {
					t.Fatalf("%s is shown version %d, which was not approved", client, n)
				}
			} else if i%2 == 1 {
				t.Fatalf("%s: version %d was approved, and is not shown: %s", client, i, end)
			}
		}
	}
}

// Neither a reload nor another configuration of the same server releases a withheld
// definition.
func TestAReloadFreesNothing(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		s, book := web(t, "s", era), shelf(t)
		s.setList("tools/list", twoTools)
		auto := s.server(pinnedBy(book, false))
		h := build(t, []Server{auto})
		all := clients(h, "/mcp", "uid:1000")
		for _, call := range all {
			call("tools/list", "{}")
		}
		s.setList("tools/list", badTools)
		other := web(t, "other", era).server(pinnedBy(book, false))
		manual, shared := s.server(pinnedBy(book, true)), s.server(pinnedBy(book, false), func(s *Server, _ *upstream.Definition) { s.Instances = "shared" })
		for i, next := range [][]Server{{auto}, {auto, other}, {manual}, {shared}, {other}, {auto}} {
			h.relay.SetServers(next)
			for client, call := range all {
				list := call("tools/list", "{}")
				for _, bad := range []string{"sends", "evil"} {
					if strings.Contains(list, bad) {
						t.Errorf("%s, reload %d, %s: %s", era, i, client, list)
					}
				}
				equal(t, fmt.Sprint(era, " reload ", i, " ", client, " calls it"), code(call("tools/call", `{"name":"s__add","arguments":{"secret":1}}`)), "-32602")
			}
		}
		for _, q := range s.got("tools/call") {
			if q.name() == "add" || strings.Contains(q.raw, "secret") {
				t.Errorf("the server got %s", q.raw)
			}
		}
	}
}

// A grant for a tool ends when its definition changes: the tool is withheld and not called,
// and after a new approval the next call is held again. The same holds for a tool whose name
// is shown in another spelling.
func TestAGrantEndsWithTheDefinition(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, name := range []string{"pay", `p\u200bay`} {
			for _, life := range []string{approval.Session, approval.Hour, approval.Always} {
				t.Run(fmt.Sprint(era, name, life), func(t *testing.T) {
					t.Parallel()
					s, book, d := web(t, "s", era), shelf(t), &counter{t: t}
					list := func(word string) {
						s.setList("tools/list", `{"tools":[{"name":"`+name+`","description":"`+word+`"}]}`)
					}
					list("first")
					h := build(t, []Server{s.server(pinnedBy(book, false))}, withCounter(d, "s", "", time.Millisecond))
					c := h.legacy("/mcp", "uid:1000", `{}`)
					call := func() string { return c.tool("s__pay", "") }
					ran := func() int { return len(s.got("tools/call")) }
					c.call("tools/list", "")
					contains(t, "held", call(), `"pending"`)
					d.settle(approval.Verdict{Approve: true, For: life})
					for range 3 {
						equal(t, "granted", field(call(), "result", "structuredContent"), "")
					}
					equal(t, "ran", fmt.Sprint(ran()), "3")
					list("second")
					c.call("tools/list", "")
					equal(t, "withheld", code(call()), "-32602")
					approve(t, h, book, "s")
					contains(t, "approved anew", call(), `"pending"`)
					d.settle(approval.Verdict{Why: "no"})
					if got := s.got("tools/call"); slices.ContainsFunc(got[3:], func(q *query) bool { return carelessly(q.name()) == "pay" }) {
						t.Errorf("it ran %d times", len(got))
					}
					if n := len(d.queue.Grants()); n != 0 {
						t.Errorf("%d grants are left", n)
					}
				})
			}
		}
	}
}
