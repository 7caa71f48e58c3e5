package client

import (
	"context"
	"fmt"
	"net"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// Apart reports whether the daemon is beyond the pid namespace of this process,
// as it is for an agent that it started and shut in. The names that processes
// have on one side mean nothing on the other then. It is the kernel that says
// so: there is no number here for who listens.
func (c *Client) Apart(ctx context.Context) (bool, error) {
	conn, err := c.dial(ctx, "", "")
	if err != nil {
		return false, err
	}
	defer conn.Close()
	who, err := peer.OfUnix(conn.(*net.UnixConn))
	if err != nil {
		return false, fmt.Errorf("asking who listens on %s: %w", c.socket, err)
	}
	defer who.Close()
	return who.PID == 0, nil
}
