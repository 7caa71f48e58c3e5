//go:build !linux && !darwin

package attest

import (
	"net"
	"syscall"
)

// OfUnix returns ErrUnsupported on this system.
func OfUnix(c *net.UnixConn) (*Credentials, error) { return nil, ErrUnsupported }

// UIDsMapped returns ErrUnsupported on this system.
func UIDsMapped() (bool, error) { return false, ErrUnsupported }

// ListenControl refuses to open the socket: this system has no peer credentials.
func ListenControl(network, address string, c syscall.RawConn) error { return ErrUnsupported }

type process struct{}

func (p *process) alive() bool  { return false }
func (p *process) close() error { return nil }

// OnClose is false: there is no handle.
func (c *Credentials) OnClose(f func()) bool { return false }
