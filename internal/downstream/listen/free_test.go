package listen

import (
	"net"
	"testing"
)

func TestFree(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if Free(addr) == nil {
		t.Error("an address in use is free")
	}
	l.Close()
	if err := Free(addr); err != nil {
		t.Errorf("an address that was let go: %v", err)
	}
}
