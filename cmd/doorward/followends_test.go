package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/doorward/doorward/client"
)

// TestFollowingEndsWithAFinalError: the errors of a daemon that ends or starts are waited out, in
// whatever they are wrapped; those that another attempt meets again are not.
func TestFollowingEndsWithAFinalError(t *testing.T) {
	t.Parallel()
	dial := func(n syscall.Errno) error {
		return fmt.Errorf("%w: %w", client.ErrNoDaemon, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", n)})
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{dial(syscall.ENOENT), false},
		{dial(syscall.ECONNREFUSED), false},
		{io.EOF, false},
		{io.ErrUnexpectedEOF, false},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{errors.New("http: server closed idle connection"), false},
		{dial(syscall.EACCES), true},
		{dial(syscall.EPERM), true},
		{client.ErrNotOurs, true},
		{&client.AdminError{Status: 401}, true},
		{&client.AdminError{Status: 403}, true},
		{json.Unmarshal([]byte(`{}`), &[]int{}), true},
	} {
		if got := isFinal(fmt.Errorf("asking the daemon: %w", c.err)); got != c.want {
			t.Errorf("%v is final: %v, want %v", c.err, got, c.want)
		}
	}
}
