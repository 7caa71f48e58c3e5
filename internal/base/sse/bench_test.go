package sse

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func BenchmarkEvents(b *testing.B) {
	for name, size := range map[string]int{"small": 300, "large": 1 << 20} {
		stream := Append(nil, "1", "", []byte(strings.Repeat("x", size)))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			var r bytes.Reader
			for b.Loop() {
				r.Reset(stream)
				if _, err := NewReader(&r, 16<<20).Next(); err != nil && err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}
