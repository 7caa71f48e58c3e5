package front

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/downstream/sessionstore"
)

// slowDisk is a disk on which a removal takes until proceed is closed.
type slowDisk struct {
	disk
	removing, proceed chan struct{}
}

func (d slowDisk) Drop(name string) bool {
	close(d.removing)
	<-d.proceed
	return d.disk.Drop(name)
}

// A session that is being ended is not found, neither in the table nor on disk, while its stored
// copy is removed.
func TestASessionThatEndsIsNotReopened(t *testing.T) {
	t.Parallel()
	store, err := sessionstore.Open(filepath.Join(t.TempDir(), "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	d := slowDisk{disk{t, store}, make(chan struct{}), make(chan struct{})}
	h := open(t, Options{Sessions: 1000, SessionsPerPrincipal: 1000, Keeper: d})
	id := h.session("2025-11-25")
	ended := make(chan int)
	go func() { ended <- h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id).status }()
	<-d.removing
	calls := func() int { return h.do("POST", "/mcp/s", echo, "Mcp-Session-Id", id).status }
	if status := calls(); status != http.StatusNotFound {
		t.Errorf("a call while it ends: %d", status)
	}
	close(d.proceed)
	if status := <-ended; status != http.StatusNoContent {
		t.Errorf("the end: %d", status)
	}
	if status := calls(); status != http.StatusNotFound || h.door.Sessions() != 0 {
		t.Errorf("a call afterwards: %d, %d sessions", status, h.door.Sessions())
	}
}
