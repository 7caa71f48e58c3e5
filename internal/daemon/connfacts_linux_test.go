package daemon

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/doorward/doorward/internal/downstream/listen"
)

// A connection that has rested comes from Accept again, with the caller that was determined at
// its beginning.
func TestAConnectionHasOneCaller(t *testing.T) {
	t.Parallel()
	l, err := listen.Open(t.Context(), listen.Spec{Network: "tcp", Addr: "127.0.0.1:0"}, listen.Credential{}, listen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	enter := new(callers).connContext(l)
	caller := func() any {
		r, _ := http.NewRequestWithContext(enter(context.Background(), c), "GET", "/", nil)
		return callerOf(r)
	}
	if first, again := caller(), caller(); first != again || callerOf(new(http.Request)) != nil {
		t.Errorf("callers %p and %p", first, again)
	}
}
