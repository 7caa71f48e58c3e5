package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	doorward "github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/visible"
)

// raws makes texts that two readers may understand differently: messages of attempts with some
// of their bytes changed.
type raws struct{ attempts }

// key spells a member's name in a way that some readers take for it.
func (r raws) key(name string) string {
	switch r.IntN(9) {
	case 0:
		return `"` + strings.ToUpper(name) + `"`
	case 1:
		return fmt.Sprintf(`"\u%04x%s"`, name[0], name[1:])
	case 2:
		return fmt.Sprintf(`"%s\u%04X"`, name[:len(name)-1], name[len(name)-1])
	case 3:
		return `"` + name + `\u0000"`
	case 4:
		return `"` + name + ` "`
	case 5:
		return `"` + strings.NewReplacer("s", "\u017f", "k", "\u212a", "a", "\uff41", "e", "\u0435").Replace(name) + `"`
	case 6:
		return `"` + name[:1] + pick(r.attempts, "\u200b", "\u00ad", "\ufeff", `\ud800`, "\xff", "\xc0\xae", "\x00") + name[1:] + `"`
	}
	return `"` + name + `"`
}

// forged is a value that no server may get under that key.
func (r raws) forged() string {
	return pick(r.attempts, `"delete"`, `"text__delete"`, `"secret"`, `"file:///secret"`, `"doorward://text/file:///secret"`, `"tools/call"`, `"resources/read"`, `{"name":"delete"}`, `{"name":"delete","uri":"file:///secret"}`,
		`"\u0064elete"`, `"delete\ud800"`, "\"delete\xff\"", `"echo\u0000delete"`, "null", "1e0", "1.0", "-0", "1E40", `["delete"]`)
}

// changed changes a text in one way.
func (r raws) changed(text string) string {
	member := r.key(pick(r.attempts, "jsonrpc", "id", "method", "params", "name", "uri", "ref", "_meta", "arguments", "task", "taskId", "cursor", "requestState")) + ":" + r.forged()
	at := func(c byte) int { // behind one of the characters
		var all []int
		for i := range len(text) {
			if text[i] == c {
				all = append(all, i+1)
			}
		}
		if all == nil {
			return len(text)
		}
		return pick(r.attempts, all...)
	}
	insert := func(i int, s string) string { return text[:i] + s + text[i:] }
	switch r.IntN(16) {
	case 0, 1, 2, 3:
		return insert(at('{'), member+",")
	case 4, 5:
		if i := strings.LastIndexByte(text[:at('}')], '}'); i >= 0 {
			return insert(i, ","+member)
		}
	case 6:
		return pick(r.attempts, "\ufeff", "\xff\xfe", "\x00", "\v", "\u00a0", "//\n", "/**/", ")]}',\n") + text
	case 7:
		return text + pick(r.attempts, text, "\x00", "\n"+text, `{"jsonrpc":"2.0","id":99999,"method":"tools/call","params":{"name":"delete"}}`, "]", ",", "\u2028")
	case 8:
		return pick(r.attempts, "["+text+"]", "["+text+","+text+"]", "[["+text+"]]", "[]", `["`+strings.ReplaceAll(text, `"`, `\"`)+`"]`)
	case 9:
		n := pick(r.attempts, 3, 64, 600, 20000)
		return strings.Replace(text, `"params":{`, `"params":{"deep":`+strings.Repeat(pick(r.attempts, "[", `{"a":`), n)+strings.Repeat("]", n)+`,`, 1)
	case 10:
		id := pick(r.attempts, "1e0", "1.0", "-0", "01", "+1", "0x1", "1E400", "null", "true", "{}", "[1]", `"\ud800"`, `"`+strings.Repeat("i", 70000)+`"`, strings.Repeat("9", 4000), `""`, "NaN", "9007199254740993")
		return `{"jsonrpc":"2.0","id":` + id + strings.TrimPrefix(text, `{"jsonrpc":"2.0"`)
	case 11: // one letter of a string as an escape
		i := at('"')
		if i < len(text) && text[i] < 0x80 && text[i] >= ' ' {
			return text[:i] + fmt.Sprintf(`\u%04x`, text[i]) + text[i+1:]
		}
	case 12:
		return insert(at(pick[byte](r.attempts, '"', ':', ',', 'e')), pick(r.attempts, "\x00", "\xff", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\\", `\u0000`, `\ud83d`, "\n", "\t", "\u202e", "'", "\x7f"))
	case 13:
		return text[:r.IntN(len(text)+1)]
	case 14:
		return strings.Replace(text, `"2.0"`, pick(r.attempts, "2.0", `"2.00"`, `"\u0032.0"`, `"1.0"`, "null", `["2.0"]`), 1)
	case 15:
		if text == "" {
			return "{"
		}
		b := []byte(text)
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		return string(b)
	}
	return insert(at('{'), pick(r.attempts, ",", `"":1,`, member+","+member+","))
}

// sayRaw sends a text as it is, and as much of the headers as is right for it or is not.
func (r raws) sayRaw(c caller, h *house, method, params, text string) {
	switch c := c.(type) {
	case *oldSSE:
		c.put(text, "")
	case *stdioCaller:
		c.in.line(strings.ReplaceAll(text, "\n", " "))
		c.say("ping", "", true)
	case *streamable:
		req := c.request(http.MethodPost, doorward.Path(c.route), text)
		if c.modern() {
			name, _ := rawjson.GetString([]byte(params), protocol.NameMember(method))
			header := map[string][]string{"Mcp-Protocol-Version": {c.era}, "Mcp-Method": {strings.TrimSpace(method)}, "Mcp-Name": {protocol.EncodeHeader(name)}}
			if r.IntN(3) == 0 {
				other := pick(r.attempts, "echo", "delete", "text__echo", "file:///a", "=?base64?ZGVsZXRl?=", "=?base64?ZWNobw==?=", "=?BASE64?ZWNobw==?=", "", " echo", "echo, delete", "tools/call", "resources/read", "ping", protocol.V20251125, protocol.V20260728)
				key := pick(r.attempts, "Mcp-Name", "Mcp-Method", "Mcp-Protocol-Version", "Mcp-Param-Name", "Doorward-Stdio", "Mcp-Session-Id")
				header[key] = pick(r.attempts, []string{other}, append(header[key], other), append([]string{other}, header[key]...), nil)
			}
			for k, v := range header {
				req.Header[k] = v
			}
		}
		if r.IntN(20) == 0 {
			req.Header.Set("Content-Type", pick(r.attempts, "application/json; charset=utf-16", "application/json;charset=latin1", "text/plain", "application/json, text/plain", "application/jsonx"))
		}
		resp, err := c.http.Do(req)
		if err != nil {
			h.failed(err)
			return
		}
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") && strings.Contains(text, "listen") {
			resp.Body.Close() // it stays open
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// oneReading reports a text that JSON readers may understand differently at the levels of the
// protocol: what they disagree about is UTF-8, repeated keys, and keys that differ by case.
func oneReading(text string) error {
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		return fmt.Errorf("no valid JSON")
	}
	d := jsontext.NewDecoder(strings.NewReader(text)) // refuses repeated keys and lone surrogates
	if _, err := d.ReadValue(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return fmt.Errorf("more than one value")
	}
	for _, object := range [][]byte{[]byte(text), rawjson.Get([]byte(text), "params"), rawjson.GetPath([]byte(text), "params", "ref")} {
		var keys [][]byte
		for key := range rawjson.Members(object) {
			for _, before := range keys {
				if bytes.EqualFold(before, []byte(key)) {
					return fmt.Errorf("%q and %q", before, key)
				}
			}
			keys = append(keys, []byte(key))
		}
	}
	return nil
}

// namesObject reports whether the params of a method name an object, see objects.
func namesObject(method string) bool {
	return strings.HasPrefix(method, "resources/") && !strings.HasSuffix(method, "/list") || slices.Contains([]string{"tools/call", "prompts/get", "completion/complete", "subscriptions/listen"}, method)
}

// Whatever bytes a client sends, on any transport and with any headers, a server gets only
// messages that have one reading and one name, in the body as in the headers, and that were
// allowed under it.
func TestServersGetOneReadingOfAnyBytes(t *testing.T) {
	t.Parallel()
	everyCaller(t, "text", func(t *testing.T, route, name string, open func(*house, string) caller) {
		h, servers := hurdles(t)
		c := open(h, `{}`)
		reach(c, route, servers)
		made := raws{attempts{seeded(t)}}
		for range 150 {
			m := made.one()
			var text string
			switch l := c.(type) {
			case *streamable:
				text, _ = l.message(m.method, m.params, m.id)
			case *oldSSE:
				text, _ = l.message(m.method, m.params, m.id)
			case *stdioCaller:
				text, _ = l.message(m.method, m.params, m.id)
			}
			for range made.IntN(3) {
				text = made.changed(text)
			}
			made.sayRaw(c, h, m.method, m.params, text)
		}
		reach(c, route, servers)
		h.flush()
		got := make(map[*script][]*query)
		for _, s := range servers {
			got[s] = s.taken()
		}
		a := h.account() // of these at least: some may still be on their way
		for _, s := range servers {
			for _, q := range got[s] {
				if q.Method == flushed {
					continue
				}
				if err := json.Unmarshal([]byte(q.raw), new(reading)); err == nil || namesObject(q.Method) {
					a.inspect(t, s.name, q)
				} else if !a.settles(q.Method, s.name, s.name) { // params that the method does not have
					t.Errorf("%s got what was not allowed: %s", s.name, q.raw)
				}
				if err := oneReading(q.raw); err != nil {
					t.Errorf("%s got %v: %s", s.name, err, q.raw)
				}
				if strings.ContainsFunc(q.Method, visible.Hidden) {
					t.Errorf("%s got the method %q", s.name, q.Method)
				}
				if method := q.header["Mcp-Method"]; method != nil && (len(method) != 1 || method[0] != q.Method) {
					t.Errorf("%s got headers %q with %s", s.name, method, q.raw)
				}
				if named := q.header["Mcp-Name"]; named != nil {
					of, _ := rawjson.GetString(q.Params, protocol.NameMember(q.Method))
					if got, err := protocol.DecodeHeader(named[0]); err != nil || len(named) != 1 || got != of {
						t.Errorf("%s got name %q with %s", s.name, named, q.raw)
					}
				}
			}
		}
	})
}
