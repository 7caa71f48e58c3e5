package daemon

import (
	"net"
	"os"
)

// notify tells systemd how the daemon is doing (sd_notify(3)). Without
// NOTIFY_SOCKET it does nothing; a failure is not worth stopping for.
func notify(state string) {
	addr := os.Getenv("NOTIFY_SOCKET")
	if addr == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}
