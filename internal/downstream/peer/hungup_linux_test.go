package peer

import (
	"io"
	"net"
	"testing"

	"github.com/doorward/doorward/test/puppet"
)

// The end of a connection is known without a read, also behind data that was not read. The kernel
// may deliver the end of a TCP connection after the close has returned.
func TestAConnectionThatTheOtherEndClosedHasHungUp(t *testing.T) {
	t.Parallel()
	for kind, open := range listening(t) {
		for how, leave := range map[string]func(net.Conn) error{
			"closes":             net.Conn.Close,
			"closes for writing": func(c net.Conn) error { return c.(interface{ CloseWrite() error }).CloseWrite() },
			"writes and closes": func(c net.Conn) error {
				if _, err := io.WriteString(c, "unread"); err != nil {
					return err
				}
				return c.Close()
			},
		} {
			t.Run(kind+"/"+how, func(t *testing.T) {
				t.Parallel()
				network, addr, accept := open()
				client, err := net.Dial(network, addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { client.Close() })
				c := accept()
				if HungUp(c) {
					t.Error("an open connection has hung up")
				}
				if err := leave(client); err != nil {
					t.Fatal(err)
				}
				puppet.Eventually(t, "the end is known", func() bool { return HungUp(c) })
			})
		}
	}
}
