package daemon

import (
	"net"
	"os"
)

// notify reports the daemon's state to systemd (sd_notify(3)). Without NOTIFY_SOCKET it does
// nothing. A failure is ignored.
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
