package daemon

import (
	"log/slog"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/messaging/spawn"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// The launchers of a reload before the database works are those in force once it does.
func TestLaunchersOfAReloadBeforeTheDatabaseAreUsed(t *testing.T) {
	t.Parallel()
	named := func(name string) *config.Config {
		c := new(config.Config)
		c.Agent.Launchers = map[string]*config.Launcher{name: {Command: "true"}}
		return c
	}
	book, err := pin.Open(pin.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(book.Close)
	g := &agents{o: Options{Config: named("start")}, pins: book}
	g.set(named("reload"))
	g.begin(spawn.New(spawn.Options{}))
	if all := g.launched(); len(all) != 1 || all["reload"] == nil {
		t.Errorf("in force: %v", all)
	}
	g.set(named("later"))
	if all := g.launched(); len(all) != 1 || all["later"] == nil {
		t.Errorf("after a further reload: %v", all)
	}
}
