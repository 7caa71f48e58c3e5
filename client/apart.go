package client

import (
	"context"
	"fmt"
	"net"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Apart reports whether the daemon is outside the PID namespace of this
// process, as for a contained agent. Process identifiers of one side are then not valid
// on the other. The kernel reports PID 0 for such a listener.
func (c *Client) Apart(ctx context.Context) (bool, error) {
	conn, err := c.dial(ctx, "", "")
	if err != nil {
		return false, err
	}
	defer conn.Close()
	who, err := attest.OfUnix(conn.(*net.UnixConn))
	if err != nil {
		return false, fmt.Errorf("identifying the process that listens on %s: %w", c.socket, err)
	}
	defer who.Close()
	return who.PID == 0, nil
}
