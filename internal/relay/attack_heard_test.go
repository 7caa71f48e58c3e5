package relay

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// A resource that is withheld after clients have subscribed to it, or a file of a skill that is,
// makes no change known to them under any spelling, until it is approved. The other resources of
// the server do, and no client can listen to it anew.
func TestNoChangeOfAWithheldResourceIsHeard(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, era := range []string{"legacy", "modern"} {
			for _, route := range []string{"/mcp/s", "/mcp"} {
				t.Run(kind+" "+era+" "+route, func(t *testing.T) {
					t.Parallel()
					const withheld, file, other = "file:///dir/bad", "skill://bad/x.sh", "file:///a"
					s, book, r := start(t, "s", era), shelf(t), seeded(t)
					offer := func(word string) {
						s.setList("resources/list", fmt.Sprintf(`{"resources":[{"uri":%q,"name":"a"},{"uri":%q,"name":%q}]}`, other, withheld, word))
						s.setList("skills/list", fmt.Sprintf(`{"skills":[{"uri":"skill://bad/SKILL.md","resources":[{"uri":%q,"digest":%q,"size":1}]}]}`, file, word))
					}
					uri := func(u string) string {
						if route == "/mcp" {
							u = "doorward://s/" + u
						}
						return string(rawjson.AppendQuote(nil, u))
					}
					offer("before")
					h := build(t, []Server{s.server(pinnedBy(book, false))})
					c, m := h.legacy(route, "uid:1000", `{}`), h.modern(route, "uid:1000")
					look := func() {
						for _, call := range []func(string, string) string{c.call, func(method, params string) string { return m.call(method, params) }} {
							call("resources/list", `{}`)
							call("skills/list", `{}`)
						}
					}
					look()
					old := c.listen()
					for _, u := range []string{withheld, file, other} {
						equal(t, "subscribed", code(c.call("resources/subscribe", `{"uri":`+uri(u)+`}`)), "")
					}
					filter := `{"resourceSubscriptions":[` + uri(withheld) + `,` + uri(file) + `,` + uri(other) + `]}`
					listen, ack := m.subscribe(filter)
					defer listen.stop()
					for _, u := range []string{withheld, file, other} {
						contains(t, "granted", ack, uri(u))
					}
					change := func(u, mark string) {
						s.change(protocol.ResourceUpdated, `{"uri":`+string(rawjson.AppendQuote(nil, u))+`,"_meta":{"mark":"`+mark+`"}}`)
					}
					hears := map[string]*heard{"legacy": hear(old), "modern": hear(listen)}
					reach := func(mark string) { // a change of the other resource arrives
						for client, heard := range hears {
							eventually(t, client+" hears "+mark, func() bool {
								change(other, mark)
								return heard.position(mark) >= 0
							})
						}
					}
					reach("before")

					offer("after")
					s.change(protocol.ResourcesChanged, `{}`)
					eventually(t, "withheld", func() bool {
						look()
						return join(book.Items("s")) == "resource:"+withheld+" skill:skill://bad/SKILL.md"
					})
					reach("begin")
					for _, u := range append(addresses(r, withheld), addresses(r, file)...) {
						change(u, "")
						s.change(protocol.ResourcesChanged, `{}`) // what was learnt of the list is forgotten
						change(u, "")
					}
					reach("end")
					for client, heard := range hears {
						for _, m := range heard.between("begin", "end") {
							if text(m, "method") == protocol.ResourceUpdated && !strings.Contains(m, uri(other)) {
								t.Errorf("the %s client hears %s", client, m)
							}
						}
					}
					again, ack := m.subscribe(filter)
					again.stop()
					equal(t, "granted to a later listen", field(ack, "params", "notifications", "resourceSubscriptions"), "["+uri(other)+"]")

					approve(t, h, book, "s")
					for _, u := range []string{withheld, file} {
						for client, heard := range hears {
							eventually(t, client+" hears "+u, func() bool {
								change(u, "approved")
								return slices.ContainsFunc(heard.between("end", ""), func(m string) bool { return strings.Contains(m, uri(u)) })
							})
						}
					}
				})
			}
		}
	}
}

// A client hears of the changes of its task only while policy lets it ask for the task.
func TestATaskIsHeardOfOnlyWhileItMayBeAsked(t *testing.T) {
	t.Parallel()
	for what, forbids := range map[string]string{
		"the method": `forbid (principal, action == Action::"tasks/get", resource);`,
		"the server": `forbid (principal, action == Action::"tasks/get", resource == Server::"s");`,
		"the caller": `forbid (principal == Principal::"uid:1000", action == Action::"tasks/get", resource);`,
	} {
		for _, path := range []string{"/mcp/s", "/mcp"} {
			t.Run(what+" "+path, func(t *testing.T) {
				t.Parallel()
				name := map[string]string{"/mcp/s": "echo", "/mcp": "s__echo"}[path]
				for era, open := range map[string]func() (*house, *script, *heard){
					"legacy": func() (*house, *script, *heard) {
						s := withTasks(t, web)
						h := build(t, []Server{s.server()})
						c := h.legacy(path, "uid:1000", `{}`)
						c.tool(name, "")
						return h, s, hear(c.listen())
					},
					"modern": func() (*house, *script, *heard) {
						s := web(t, "s", "modern")
						s.serve = func(q *query) { q.result(`{"resultType":"task","taskId":"t-1","status":"working"}`) }
						h := build(t, []Server{s.server()})
						m := h.modern(path, "uid:1000")
						r, _ := m.subscribe(`{"toolsListChanged":true,"taskIds":[` + field(m.tool(name, ""), "result", "taskId") + `]}`)
						t.Cleanup(r.stop)
						return h, s, hear(r)
					},
				} {
					h, s, heard := open()
					method := map[string]string{"legacy": protocol.TaskStatus, "modern": protocol.TaskChanged}[era]
					change := func(mark string) {
						s.change(method, `{"taskId":"t-1","status":"working","_meta":{"mark":"`+mark+`"}}`)
					}
					eventually(t, era+" before", func() bool { change("before"); return heard.position("before") >= 0 })
					h.obey(forbids)
					change("forbidden")
					s.change(protocol.ToolsChanged, `{"_meta":{"mark":"end"}}`) // comes after it
					eventually(t, era+" end", func() bool { return heard.position("end") >= 0 })
					if heard.position("forbidden") >= 0 {
						t.Errorf("%s: the client hears of a task that it may not ask for", era)
					}
				}
			})
		}
	}
}

// heard is what a stream has carried so far.
type heard struct {
	mu  sync.Mutex
	all []string
}

// hear collects what a stream carries.
func hear(r *reply) *heard {
	h := new(heard)
	go func() {
		for m := range r.msgs {
			h.mu.Lock()
			h.all = append(h.all, m)
			h.mu.Unlock()
		}
	}()
	return h
}

// position returns the place of the first message with a mark; -1: none has it.
func (h *heard) position(mark string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.IndexFunc(h.all, func(m string) bool { return text(m, "params", "_meta", "mark") == mark })
}

// between returns the messages between the first ones with two marks; to "": up to now.
func (h *heard) between(from, to string) []string {
	first, last := h.position(from), h.position(to)
	h.mu.Lock()
	defer h.mu.Unlock()
	if to == "" {
		last = len(h.all)
	}
	return slices.Clone(h.all[first+1 : last])
}
