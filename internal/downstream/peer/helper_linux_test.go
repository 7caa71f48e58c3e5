package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

func TestMain(m *testing.M) { puppet.Main(m, stages, steps) }

// steps are orders to a puppet that this package carries out.
var steps = puppet.Steps{
	"above": func([]string) (string, error) {
		above, err := Above()
		names := make([]string, len(above))
		for i, p := range above {
			names[i] = p.Instance
		}
		return strings.Join(names, " "), err
	},
	"protect": func([]string) (string, error) { return "", ProtectSelf() },
}

// askWithoutDescriptors asks for the owner of its own connection.
func askWithoutDescriptors(args []string) error {
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: 0}); err != nil {
		return err
	}
	_, err = OwnerOfTCP(addrOf(c.RemoteAddr()), addrOf(c.LocalAddr()))
	fmt.Println("asked", err != nil, errors.Is(err, ErrUnavailable))
	return nil
}

// unixListener opens a socket that every user may connect to.
func unixListener(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	path := filepath.Join(puppet.OpenDir(t), "s")
	ln, err := (&net.ListenConfig{Control: attest.ListenControl}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return ln.(*net.UnixListener), path
}

func addrOf(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
