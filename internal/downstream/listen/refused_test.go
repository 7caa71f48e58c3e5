package listen

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Only an address with a port is explained by the rights that a port needs.
func TestOnlyAPortNeedsTheRightsOfAPort(t *testing.T) {
	t.Parallel()
	denied := func(network string) error {
		return &net.OpError{Op: "listen", Net: network, Err: os.NewSyscallError("bind", syscall.EACCES)}
	}
	directory := fmt.Errorf("making the private directory: %w", &os.PathError{Op: "mkdir", Path: "/run/doorward", Err: syscall.EACCES})
	for name, c := range map[string]struct {
		err  error
		port bool
	}{
		"a port":            {denied("tcp"), true},
		"a socket":          {denied("unix"), false},
		"a directory of it": {directory, false},
	} {
		reason := refuse("addr", c.err).Reason
		if got := strings.Contains(reason, "port"); got != c.port || !strings.Contains(reason, "permission denied") {
			t.Errorf("%s is refused: %s", name, reason)
		}
	}
}
