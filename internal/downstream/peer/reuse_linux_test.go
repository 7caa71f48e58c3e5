package peer

import (
	"context"
	"net"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

// namespaced acts as the daemon in a pid namespace of its own, as pid 1.
func namespaced(path string) (*net.UnixListener, *puppet.Stagehand, error) {
	if err := puppet.EnterOwnNumbers(); err != nil {
		return nil, nil, err
	}
	ln, err := (&net.ListenConfig{Control: attest.ListenControl}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, nil, err
	}
	p, err := puppet.NewStagehand(path)
	return ln.(*net.UnixListener), p, err
}
