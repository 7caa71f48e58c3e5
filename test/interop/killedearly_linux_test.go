//go:build interop

package interop

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// A client that is killed at any moment of its start leaves no process of its server, also if it
// was killed before Doorward could find out which program it is.
func TestAClientThatIsKilledAtItsStartLeavesNoProcess(t *testing.T) {
	t.Parallel()
	notes := filepath.Join(doortest.ModuleRoot(t), "bin", "notes-server")
	d := doortest.Start(t, "mcpServers: {notes: {command: "+notes+", doorward: {instances: session}}}\n", doortest.Options{})
	for range 60 {
		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() { killEarly(t, d, time.Duration(rand.IntN(200))*time.Millisecond) })
		}
		clients.Wait()
	}
	doortest.Until(t, patience, "no process is left", func() bool { return len(below(d.PID())) == 0 })
}

// killEarly starts a client that initializes, and kills it.
func killEarly(t *testing.T, d *doortest.Daemon, after time.Duration) {
	cmd := d.Command("connect", "notes")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"k","version":"1"}}}`)
	time.Sleep(after) // the moment of the kill
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
