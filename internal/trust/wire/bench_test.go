package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// call300 is an ordinary tools/call of about 300 bytes.
const call300 = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"search_files","arguments":` +
	`{"path":"/home/user/projects/example","pattern":"func main","recursive":true,"limit":50,"exclude":["vendor",".git"]},` +
	`"_meta":{"progressToken":17,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

func response(result string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`)
}

func benchTexts() map[string][]byte {
	result := func(text string) []byte {
		return response(`{"content":[{"type":"text","text":` + text + `}]}`)
	}
	var rows, keys strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&rows, `{"id":%d,"name":"row %d","ok":true,"score":%d.5},`, i, i, i)
		fmt.Fprintf(&keys, `"key number %d":%d,`, i*7919, i)
	}
	return map[string][]byte{
		"call300":    []byte(call300),
		"string1MiB": result(`"` + strings.Repeat("the quick brown fox jumps over the lazy dog and ", 1<<20/49) + `"`),
		"source1MiB": result(strconv.Quote(strings.Repeat("\tif err != nil {\n\t\treturn fmt.Errorf(\"x: %w\", err)\n\t}\n", 1<<20/60))),
		"cjk1MiB":    result(`"` + strings.Repeat("信頼できる扉。", 1<<20/21) + `"`),
		"rows":       response(`{"rows":[` + strings.TrimSuffix(rows.String(), ",") + `]}`),
		"keys10k":    response(`{"m":{` + strings.TrimSuffix(keys.String(), ",") + `}}`),
	}
}

func BenchmarkParse(b *testing.B) {
	for name, text := range benchTexts() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(text, FromServer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJSONText is jsontext, a strict reader, for comparison: it checks syntax,
// UTF-8 and duplicates, and no envelope.
func BenchmarkJSONText(b *testing.B) {
	for name, text := range benchTexts() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var r bytes.Reader
			dec := jsontext.NewDecoder(&r)
			for b.Loop() {
				r.Reset(text)
				dec.Reset(&r)
				if _, err := dec.ReadValue(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodingJSON(b *testing.B) {
	for name, text := range benchTexts() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !json.Valid(text) {
					b.Fatal("invalid")
				}
			}
		})
	}
}
