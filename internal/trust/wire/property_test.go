package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// writer makes random messages that are nearly right: known and strange keys,
// repeated, in other cases, escaped; all kinds of values; now and then a
// wrong byte. Random bytes would hardly ever pass the first brace.
type writer struct {
	*rand.Rand
	out []byte
}

var nastyKeys = []string{"jsonrpc", "id", "method", "params", "result", "error", "name", "arguments", "_meta", "uri",
	"taskId", "code", "message", "data", "content", "a", "b", "k", "s", "é", "ß", "", "x\x00", "a long key of many bytes", "\u212a", "\u017f"}

func (w *writer) pick(of ...string) string { return of[w.IntN(len(of))] }

// quote writes s as a string in which any character may be escaped.
func (w *writer) quote(s string) {
	w.out = append(w.out, '"')
	for _, r := range s {
		switch {
		case w.IntN(20) == 0 && r < 0x10000:
			w.out = fmt.Appendf(w.out, `\u%04x`, r)
		case r < ' ' || r == '"' || r == '\\':
			w.out = fmt.Appendf(w.out, `\u%04X`, r)
		default:
			w.out = append(w.out, string(r)...)
		}
	}
	w.out = append(w.out, '"')
}

func (w *writer) space() {
	if w.IntN(10) == 0 {
		w.out = append(w.out, w.pick(" ", "\n", "\t", "\r", "  ")...)
	}
}

func (w *writer) value(depth int) {
	w.space()
	switch n := w.IntN(12); {
	case n < 3 && depth < 6:
		w.object(depth, nil)
	case n == 3 && depth < 6:
		w.out = append(w.out, '[')
		for i := range w.IntN(4) {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.value(depth + 1)
		}
		w.out = append(w.out, ']')
	case n < 8:
		w.quote(w.pick("", "2.0", "tools/call", "x", "a\nb", "ü😀", "plain text of some length", "\"\\"))
	case n == 8:
		w.out = append(w.out, w.pick("true", "false", "null")...)
	default:
		w.out = append(w.out, w.pick("0", "-0", "7", "-1", "1.0", "1e5", "1E-7", "12345678901234567890", "-32601", "01", "1.", "-")...)
	}
	w.space()
}

// object writes the members of fixed, and a few more.
func (w *writer) object(depth int, fixed []string) {
	w.out = append(w.out, '{')
	keys := append([]string(nil), fixed...)
	for range w.IntN(4) * w.IntN(2) {
		keys = append(keys, w.pick(nastyKeys...))
	}
	if w.IntN(50) == 0 {
		keys = append(keys, numbered("k%d", 20)...)
	}
	w.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for i, k := range keys {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.space()
		if w.IntN(60) == 0 && len(k) > 0 {
			k = string(bytes.ToUpper([]byte(k[:1]))) + k[1:]
		}
		w.quote(k)
		w.space()
		w.out = append(w.out, ':')
		w.member(depth, k)
	}
	w.out = append(w.out, '}')
}

// member writes a value that mostly suits the key.
func (w *writer) member(depth int, key string) {
	if w.IntN(30) == 0 {
		w.value(depth + 1)
		return
	}
	switch key {
	case "jsonrpc":
		w.quote("2.0")
	case "id", "code":
		w.out = append(w.out, w.pick("1", `"x"`, "-7", "123")...)
	case "method", "message":
		w.quote(w.pick("tools/call", "ping", "notifications/message", "strange"))
	case "params", "arguments", "_meta":
		w.object(depth+1, nil)
	case "error":
		w.object(depth+1, []string{"code", "message"})
	default:
		w.value(depth + 1)
	}
}

func (w *writer) message() []byte {
	w.out = nil
	w.space()
	w.object(0, [][]string{
		{"jsonrpc", "id", "method", "params"}, {"jsonrpc", "method", "params"}, {"jsonrpc", "id", "method"},
		{"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"}, {"jsonrpc", "error"},
	}[w.IntN(6)])
	w.space()
	if w.IntN(5) == 0 {
		at := w.IntN(len(w.out))
		switch w.IntN(3) {
		case 0:
			w.out[at] = byte(w.IntN(256))
		case 1:
			w.out = append(w.out[:at], w.out[at+1:]...)
		case 2:
			w.out = append(w.out[:at:at], append([]byte(w.pick(`\`, `"`, "\xff", "\x01", ",", "}", "]", `\ud800`, " ")), w.out[at:]...)...)
		}
	}
	return w.out
}

// Parse refuses what two independent readers refuse, and a message that it accepts is
// the same for a decoder that folds case.
func TestParseAgreesWithOthers(t *testing.T) {
	t.Parallel()
	w := &writer{Rand: rand.New(rand.NewPCG(1, 2))}
	accepted, reasons := 0, map[string]int{}
	for range 30_000 {
		b := w.message()
		m, err := Parse(b, FromServer)
		judge(t, b, err)
		if err != nil {
			reasons[reasonOf(err)]++
			continue
		}
		accepted++
		sameReading(t, b, m)
		sameAgain(t, m)
	}
	// The test shows something only while the generator reaches both sides.
	if accepted < 3000 || len(reasons) < 20 {
		t.Errorf("%d accepted, refused for %v", accepted, reasons)
	}
	t.Logf("%d accepted, refused for %v", accepted, reasons)
}
