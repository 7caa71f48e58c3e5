package peer

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// What a checked read costs more than a plain one, each with its write.
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

func BenchmarkLooks(b *testing.B) {
	ln, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	conn, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	creds, err := OfUnix(conn.(*net.UnixConn))
	if err != nil {
		b.Fatal(err)
	}
	defer creds.Close()
	o := NewObserver(Limits{})
	image := o.Observe(b.Context(), creds).Image
	if image == nil {
		b.Skip("there is no image to hold here")
	}
	b.Run("Holds", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !image.Holds() {
				b.Fatal("lost")
			}
		}
	})
	b.Run("Alive", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !creds.Alive() {
				b.Fatal("dead")
			}
		}
	})
	b.Run("Observe, digest known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			again := &Credentials{PID: creds.PID, UID: creds.UID} // images are let go with it
			if e := o.Observe(b.Context(), again); e.Exe == "" {
				b.Fatal("nothing was observed")
			}
			again.Close()
		}
	})
	b.Run("DescendantOf, a stranger", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if DescendantOf(int32(os.Getppid()), creds.PID) {
				b.Fatal("our parent is our child")
			}
		}
	})
}
