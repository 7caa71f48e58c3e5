package process

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// A contained server opens no socket of netlink on which the kernel tells about the processes of the host, such as those of
// the connector and of audit, whatever the type of the socket. Those that programs need are open.
func TestNetlinkTellsOfNoProcess(t *testing.T) {
	if auditArch == 0 {
		t.Skip("there is no filter for this processor")
	}
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		var attempts []string
		for protocol := range 32 {
			for _, kind := range []int{unix.SOCK_RAW, unix.SOCK_DGRAM} {
				attempts = append(attempts, fmt.Sprint("socket ", unix.AF_NETLINK, " ", kind, " ", protocol))
			}
		}
		got := s.attempts(who, order{Sandbox: Sandbox{Mode: Contain}}, attempts...)
		for i, attempt := range attempts {
			want := "EPROTONOSUPPORT"
			switch i / 2 {
			case unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_KOBJECT_UEVENT, unix.NETLINK_GENERIC:
				want = "ok"
			}
			s.refused(got, want, attempt)
		}
	})
}
