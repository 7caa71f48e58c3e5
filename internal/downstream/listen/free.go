package listen

import (
	"fmt"
	"net"
)

// Free returns nil if a TCP address, HOST:PORT, can be bound at this moment, and otherwise
// why it cannot. It binds it and lets it go.
func Free(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("trying to bind: %w", err)
	}
	return l.Close()
}
