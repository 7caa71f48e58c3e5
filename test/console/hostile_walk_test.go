package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// newHostileHouse is a daemon with an attack at every place where a server, an agent or a
// document has a text. calls is the file of the calls that reach its servers.
func newHostileHouse(t *testing.T) (h *house, calls string) {
	t.Helper()
	dir := t.TempDir()
	h, calls = &house{t: t}, filepath.Join(dir, "calls")
	web := httptest.NewServer(&hostileServer{calls: calls})
	t.Cleanup(web.Close)
	visible := regexp.MustCompile(`[\p{C}\p{Zl}]|\{\{`).ReplaceAllString(strings.Join(attacks(), " "), "")
	h.write(filepath.Join(dir, "guides", "house.md"), "---\nname: house\nclass: instructions\ndescription: a text\n---\n"+visible+"\n")
	policy := filepath.Join(dir, "policy.cedar")
	h.write(policy, "// "+visible+"\n@id(\"reads\") @ask(\"it reads\") permit (principal, action in [Action::\"prompts/get\", Action::\"resources/read\"], resource in Server::\"odd\");\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h.Daemon = doortest.Start(t, fmt.Sprintf(`approvals: {wait: 10m}
limits: {sessions_per_principal: 500}
mcpServers:
  odd:
    command: %s
    env: {%s: %s}
    doorward: {sandbox: "off", tools: {ask: ["*"]}}
  web:
    url: %s/
    doorward: {allow_private: true, tools: {ask: ["tool*"]}}
  gone:
    command: /nonexistent/<img src=x onerror=window.pwned=1>
    doorward: {sandbox: "off"}
policy: %s
instructions: {dir: %s}
`, self, hostileServerMode, calls, web.URL, policy, filepath.Join(dir, "guides")), doortest.Options{})
	h.run("tools", "odd")
	h.run("tools", "web")
	h.fails("tools", "gone")
	h.client(hostileClientMode + "=" + h.URL)
	return h, calls
}

// client runs this test binary as an agent, until it has said that its work is over and the
// number of calls that wait no longer grows.
func (h *house) client(env string) {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(h.Env(), env)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		h.t.Fatal("the agent does not start")
	}
	h.t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "over\n" {
		h.t.Fatalf("the agent says %q: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	n, same := 0, 0
	within(h.t, 3*time.Minute, "all calls", func() bool {
		before := n
		if n = len(h.waiting()); n != before {
			same = 0
		}
		same++
		return n > 70 && same > 10
	})
}

// waiting returns the numbers of the held calls.
func (h *house) waiting() (numbers []string) {
	h.t.Helper()
	var all []struct{ N uint64 }
	if err := json.Unmarshal([]byte(h.run("pending", "--json")), &all); err != nil {
		h.t.Fatal(err)
	}
	for _, c := range all {
		numbers = append(numbers, fmt.Sprint(c.N))
	}
	return numbers
}

// damage is a script that returns what a hostile text has done to the page: markup that no
// template has, characters that cannot be seen, addresses outside of the console, a script that
// ran, buttons that cannot be reached, and characters that are drawn over other texts.
const damage = `(() => {
  const bad = [], say = (what, e) => bad.push(what + ': ' + (e.outerHTML || String(e)).slice(0, 200));
  if (window.pwned !== undefined) say('a script ran', 'pwned');
  document.querySelectorAll('img, iframe, object, embed, base, main script, main style, main meta, main link, hx-partial').forEach((e) => say('markup', e));
  for (const e of document.querySelectorAll('*')) {
    for (const a of e.attributes) {
      if (/^on/i.test(a.name) || a.name === 'autofocus' && !e.name) say('an attribute', e);
      if (['href', 'src', 'action', 'data-hx-get'].includes(a.name) && !/^(\/ui\/|#)/.test(a.value)) say('an address', e);
    }
  }
  for (const e of document.querySelectorAll('dt')) if (/^(owner|presence)$/.test(e.textContent)) say('a claim as a fact', e);
  if (/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/.test(document.documentElement.outerHTML)) say('a hidden character', '');
  if (document.documentElement.scrollWidth > innerWidth) say('too wide', document.documentElement.scrollWidth);
  for (const e of performance.getEntriesByType('resource')) if (!e.name.startsWith(location.origin + '/')) say('a request', e.name);
  for (const b of document.querySelectorAll('main button, main select, main input:not([type=hidden])')) {
    b.scrollIntoView({block: 'center', behavior: 'instant'});
    const r = b.getBoundingClientRect(), at = document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);
    if (r.left < 0 || r.right > innerWidth || r.height > innerHeight || !at || at !== b && !b.contains(at)) say('out of reach', b);
    if (b.tagName === 'BUTTON' && !b.textContent.trim()) say('no name', b);
  }
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  for (let n; (n = walker.nextNode());) {
    let e = n.parentElement;
    if (!/\p{M}{3}/u.test(n.data) || ['OPTION', 'TEXTAREA'].includes(e.tagName)) continue;
    while (e.id !== 'main' && getComputedStyle(e).overflowY === 'visible') e = e.parentElement;
    if (e.matches('#main, .box, section, table')) say('drawn over others', n.parentElement);
  }
  return [...new Set(bad)].join('\n');
})()`

// TestHostileTextsDoNothingOnAnyPage follows all links of the console, a few pages of each kind,
// with an attack at every place, at two widths, before and after an update of the live part.
func TestHostileTextsDoNothingOnAnyPage(t *testing.T) {
	b := newBrowser(t)
	h, calls := newHostileHouse(t)
	h.write(calls+".changed", "")
	h.run("tools", "web")
	h.run("tools", "odd")
	b.signIn(h)
	b.complaints()
	waiting, held := h.waiting(), map[string]bool{}
	seen, kinds, queue := map[string]bool{}, map[string]int{}, []string{base(h)}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		kind, _, _ := strings.Cut(at, "?")
		if kinds[kind]++; kinds[kind] > 6 && !strings.HasSuffix(kind, "/decisions") {
			continue
		}
		b.open(at)
		for _, next := range value[[]string](b, `[...document.querySelectorAll('a')].map((a) => a.href.replace(/#.*/, ''))`) {
			if !strings.HasPrefix(next, base(h)) {
				t.Errorf("%s leads to %s", at, next)
			} else if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
		for _, n := range value[[]string](b, `[...document.querySelectorAll('[aria-labelledby=h-calls] h3')].map((e) => e.textContent.replace(/:.*/s, ''))`) {
			held[n] = true
		}
		if n := b.number(`performance.getEntriesByType('navigation')[0].decodedBodySize`); n > 400<<10 {
			t.Errorf("%s has %v bytes", at, n)
		}
		for _, width := range []int64{375, 1280} {
			b.width(width)
			if found := b.text(damage); found != "" {
				t.Errorf("%s, %d wide: %s", at, width, found)
			}
		}
		if b.text("document.body.dataset.live ?? ''") != "" {
			b.run(`document.querySelector('#live > *').id = 'before'; document.body.dispatchEvent(new Event('live'))`)
			within(t, 20*time.Second, "a new part of "+at, func() bool { return b.text("document.getElementById('before')?.id ?? ''") == "" })
			if found := b.text(damage); found != "" {
				t.Errorf("%s, after an update: %s", at, found)
			}
		}
		for _, c := range b.complaints() {
			t.Errorf("%s: %s", at, c)
		}
	}
	for _, n := range waiting {
		if !held[n] {
			t.Errorf("no link leads to call %s", n)
		}
	}
	if len(kinds) < 15 {
		t.Errorf("only %d kinds of pages are seen: %v", len(kinds), kinds)
	}
}

// shownCall is a held call as a page shows it.
type shownCall struct {
	Title, Args, Text string
	Cut               bool // it can only be denied here
}

// TestWhatIsApprovedIsWhatWasShown: each call reaches its server with the name and the arguments
// that the page Decisions showed above the button, whatever characters they have.
func TestWhatIsApprovedIsWhatWasShown(t *testing.T) {
	b := newBrowser(t)
	h, calls := newHostileHouse(t)
	b.signIn(h)
	b.open(base(h) + "decisions")
	if found := violations(b, axeSource(t)); found != "" {
		t.Error(found)
	}
	var shown, reached []string
	ordered, cut := false, 0
	for range 9 {
		b.open(base(h) + "decisions")
		x := value[[]float64](b, leftToRight)
		ordered = ordered || len(x) == 2 && x[0] < x[1]
		boxes := value[[]shownCall](b, approveAll)
		for _, c := range boxes {
			if !regexp.MustCompile(`Held by [^:]+: (it reads|on the server's ask list|messages to the recipient are held)`).MatchString(c.Text) {
				t.Errorf("the page does not say why it is held: %s", c.Text)
			}
			if c.Cut {
				cut++
				continue
			}
			if name, ok := toolOf(t, c.Title); ok && !regexp.MustCompile(`\p{C}`).MatchString(name) { // such a tool is not offered
				shown = append(shown, name+" "+canonical(t, c.Args))
			}
		}
		if len(boxes) == 0 {
			break
		}
	}
	if cut != 3 { // two names of tools and one argument; withheld tools are held like unknown ones
		t.Errorf("%d calls are too long, want 3", cut)
	}
	if !ordered {
		t.Error("the numbers of a list are not shown in their order")
	}
	within(t, 20*time.Second, "the calls at the servers", func() bool {
		text, _ := os.ReadFile(calls) // missing before the first call
		return strings.Count(string(text), "\n") >= len(shown)
	})
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var p struct {
			Name      string
			Arguments json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		reached = append(reached, p.Name+" "+canonical(t, string(p.Arguments)))
	}
	slices.Sort(shown)
	slices.Sort(reached)
	if len(shown) < 2*len(attacks())-8 || !slices.Equal(shown, reached) {
		t.Errorf("%d calls were shown, %d reached the servers\n%q\n%q", len(shown), len(reached), shown, reached)
	}
}

// toolOf returns the name of the tool in the title of a held call; false: it is no call of a tool.
func toolOf(t *testing.T, title string) (string, bool) {
	t.Helper()
	_, name, _ := strings.Cut(title, " / ")
	if strings.HasPrefix(name, `"`) {
		plain, err := strconv.Unquote(name)
		if err != nil {
			t.Fatalf("the title %q: %v", title, err)
		}
		return plain, true
	}
	return name, !strings.Contains(name, " ")
}

// canonical is a JSON text with sorted members and its numbers as they are.
func canonical(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

// approveAll is a script that sends the first form of each call, which approves it if the page
// shows all of it, and returns what the page shows of the calls.
const approveAll = `(async () => {
  const all = [...document.querySelectorAll('[aria-labelledby=h-calls] .box')];
  for (const box of all) { // a call that is not shown completely has only the button that denies
    const form = box.querySelector('form button').form;
    const answer = await fetch(form.action, {method: 'POST', body: new URLSearchParams(new FormData(form)), redirect: 'manual'});
    if (answer.type !== 'opaqueredirect') throw new Error(box.innerText + answer.status);
  }
  return all.map((box) => ({cut: box.querySelectorAll('form button').length === 1, title: box.querySelector('h3').innerText, args: box.querySelector('pre').textContent, text: box.innerText}));
})()`

// leftToRight is a script that returns the places of two numbers which follow each other in a
// list beside Hebrew letters.
const leftToRight = `(() => {
  const pre = [...document.querySelectorAll('pre')].find((p) => /\u05d0 1/.test(p.textContent));
  if (!pre) return [];
  const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT), range = document.createRange();
  for (let n; (n = walker.nextNode());) {
    const m = /,(\d+),100,/.exec(n.data);
    if (!m) continue;
    return [[1, 1 + m[1].length], [m[0].length - 4, m[0].length - 1]].map(([from, to]) => {
      range.setStart(n, m.index + from);
      range.setEnd(n, m.index + to);
      return range.getBoundingClientRect().left;
    });
  }
})()`
