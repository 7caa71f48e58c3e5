package peer

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/downstream/attest"
)

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
	creds, err := attest.OfUnix(conn.(*net.UnixConn))
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
			again := &attest.Credentials{PID: creds.PID, UID: creds.UID} // its end releases the image
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
