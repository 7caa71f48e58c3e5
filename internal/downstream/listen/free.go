package listen

import (
	"fmt"
	"net"
)

// Free returns nil if a TCP address, HOST:PORT, can be bound now, and otherwise the
// reason why not. It binds the address and releases it.
func Free(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("trying to bind: %w", err)
	}
	return l.Close()
}
