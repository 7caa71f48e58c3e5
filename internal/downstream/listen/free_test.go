package listen

import (
	"fmt"
	"net"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

func TestFree(t *testing.T) {
	t.Parallel()
	addr := fmt.Sprintf("127.0.0.1:%d", doortest.FreePort(t))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if Free(addr) == nil {
		t.Error("an address in use is free")
	}
	l.Close()
	if err := Free(addr); err != nil {
		t.Errorf("an address that was let go: %v", err)
	}
}
