package authn

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/principal"
)

// observing returns the caller of a real connection whose program is observed.
func observing(t *testing.T) (c *Caller, end func()) {
	t.Helper()
	var cmd *exec.Cmd
	creds := peerOf(t, func(c *exec.Cmd) { cmd = c })
	o := peer.NewObserver(peer.Limits{})
	c = &Caller{Unix: creds, Observe: func() peer.Evidence { return o.Observe(t.Context(), creds) }}
	return c, func() { cmd.Process.Kill(); cmd.Wait() }
}

func TestTheProgramBehindTheSocketIsObserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := observing(t)
	p, err := w.Authenticate(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	exe, _ := os.Executable()
	for name, want := range map[string]string{"exe": exe, "parent_exe": exe, "exe_sha256": "", "start": "", "parents": "", "cgroup": ""} {
		f, ok := p.Fact(name)
		if !ok || f.Grade != principal.Observed || f.Value == "" || want != "" && f.Value != want {
			t.Errorf("fact %s: %+v, want %q", name, f, want)
		}
	}
	if f, ok := p.Fact("unit"); !ok || f.Grade.MayAllow() || (f.Value == "") != (f.Grade == principal.Unavailable) {
		t.Errorf("fact unit: %+v", f)
	}
	if p.Witness() == nil || !p.Witness().Holds() {
		t.Error("no witness of the program, or one that does not hold")
	}
	again, err := w.Authenticate(c, nil)
	if again != p || err != nil {
		t.Errorf("the next request is %v, %v: want the same principal, without another observation", again, err)
	}
}

// A fact that cannot be observed is listed as unavailable, without a value, so that a rule
// about it refuses.
func TestAFactThatCannotBeObservedIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, observe := range map[string]func() peer.Evidence{
		"no observer": nil,
		"no evidence": func() peer.Evidence {
			return peer.Evidence{}
		},
	} {
		w := newWorld(t)
		p, err := w.Authenticate(&Caller{Unix: peerOf(t, func(*exec.Cmd) {}), Observe: observe}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, fact := range []string{"start", "exe", "exe_sha256", "parent_exe", "parents", "cgroup", "unit"} {
			if f, ok := p.Fact(fact); !ok || f.Grade != principal.Unavailable || f.Value != "" {
				t.Errorf("%s: fact %s: %+v, %v", name, fact, f, ok)
			}
		}
		if p.Witness() != nil {
			t.Errorf("%s: there is a witness", name)
		}
	}
}

// A connection is refused for good once its observed program is gone, because the facts are
// not those of a program that the process executes later. The process ends here; package peer
// tests the exec too.
func TestAProgramThatIsGoneIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, end := observing(t)
	p, err := w.Authenticate(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	end()
	for range 2 {
		if got, err := w.ask(c, "Bearer "+envToken); err != ErrUnauthenticated {
			t.Errorf("%q, %v", got, err)
		}
	}
	if p.Witness().Holds() {
		t.Error("the witness still holds")
	}
	kept := p.Witness()
	kept.Retain()
	c.Unix.Close()
	kept.Release()
}

func BenchmarkAuthenticateUnix(b *testing.B) {
	w := newWorld(b)
	for _, how := range []string{"not observed", "observed"} {
		b.Run(how, func(b *testing.B) {
			self := ownPeer(b)
			c := &Caller{Unix: self}
			if o := peer.NewObserver(peer.Limits{}); how == "observed" {
				c.Observe = func() peer.Evidence { return o.Observe(b.Context(), self) }
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Authenticate(c, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// ownPeer returns the credentials of this process as its own peer.
func ownPeer(b *testing.B) *attest.Credentials {
	b.Helper()
	creds, err := connectToSelf(fmt.Sprint(b.TempDir(), "/s"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { creds.Close() })
	return creds
}

func connectToSelf(path string) (*attest.Credentials, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return attest.OfUnix(conn.(*net.UnixConn))
}
