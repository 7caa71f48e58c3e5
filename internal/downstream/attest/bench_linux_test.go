package attest

import (
	"net"
	"path/filepath"
	"testing"
)

// The benchmark compares a checked read with a plain one, each with its write.
func BenchmarkRead(b *testing.B) {
	ln, err := (&net.ListenConfig{Control: ListenControl}).Listen(b.Context(), "unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	for _, kind := range []string{"plain", "guarded"} {
		b.Run(kind, func(b *testing.B) {
			checked, client := ownConnection(b, ln.(*net.UnixListener))
			var c net.Conn = checked
			if kind == "plain" {
				c = checked.(*guard).c
			}
			out, in := make([]byte, 512), make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Write(out); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Read(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
