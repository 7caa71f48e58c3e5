//go:build !linux && !darwin

package attest

import (
	"net"
	"syscall"
)

// OfUnix knows no peer credentials on this system: ErrUnsupported.
func OfUnix(c *net.UnixConn) (*Credentials, error) { return nil, ErrUnsupported }

// UIDsMapped is not known on this system: ErrUnsupported.
func UIDsMapped() (bool, error) { return false, ErrUnsupported }

// ListenControl refuses: without peer credentials the socket stays shut.
func ListenControl(network, address string, c syscall.RawConn) error { return ErrUnsupported }

type process struct{}

func (p *process) alive() bool  { return false }
func (p *process) close() error { return nil }

// OnClose keeps nothing: there is nothing to close.
func (c *Credentials) OnClose(f func()) bool { return false }
