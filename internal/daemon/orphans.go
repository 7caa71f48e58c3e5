package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// orphans tells who may be a process that an MCP client left behind. The kernel keeps no
// record of a parent that has ended, so this is told by exclusion: a process is younger
// than all that it descends from, and in the same login. What is adopted is adopted by a
// process that is above the client, so those above every client are remembered, each with
// the start of the oldest client below it, also after the client has ended and in the next
// run of the daemon.
type orphans struct {
	path string // where it is kept; empty: in memory alone
	log  *slog.Logger

	mu    sync.Mutex
	heard map[string]map[uint32]oldest // process above a client -> login of the client -> the oldest one
	saved sync.Mutex                   // held while the file is written
}

// oldest is the oldest client of a place: its start and its number.
type oldest struct {
	Start uint64 `json:"start"`
	PID   int32  `json:"pid"`
}

const (
	orphansFile = "clients.json"
	// mostForebears and mostLogins bound what is remembered. Beyond them it is remembered
	// of all processes, and of all logins, which refuses more.
	mostForebears, mostLogins = 4096, 256
)

// load reads what earlier runs noted, as far as the processes still run.
func (o *orphans) load() error {
	o.heard = map[string]map[uint32]oldest{}
	b, err := os.ReadFile(o.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &o.heard)
	}
	if err != nil {
		return fmt.Errorf("reading the list of clients: %w", err)
	}
	o.prune()
	return nil
}

// note remembers a client by its chain, itself first. Of those above it the names are enough:
// one that has ended meanwhile adopts nothing.
func (o *orphans) note(chain []string) {
	kin, err := peer.Kinship(chain[:min(len(chain), 1)])
	if err != nil || len(kin) == 0 {
		return // it has ended, or this system tells nothing, and then refuses everybody
	}
	client := kin[0]
	o.mu.Lock()
	changed := o.add(peer.First(), client) // above everybody, also where the chain cannot be read
	for _, forebear := range chain[1:] {
		changed = o.add(forebear, client) || changed
	}
	o.mu.Unlock()
	if changed && o.path != "" {
		go o.save()
	}
}

// add notes that a client is below a process. The caller holds mu.
func (o *orphans) add(forebear string, client peer.Kin) (changed bool) {
	if o.heard == nil {
		o.heard = map[string]map[uint32]oldest{}
	}
	of := o.heard[forebear]
	if of == nil {
		if len(o.heard) >= mostForebears {
			o.prune()
		}
		if len(o.heard) >= mostForebears {
			return false // crowded: since looks at all clients
		}
		of = map[uint32]oldest{}
		o.heard[forebear] = of
	}
	login := client.Login
	if _, known := of[login]; !known && len(of) >= mostLogins {
		login = peer.NoLogin
	}
	if since, known := of[login]; known && since.Start <= client.Start {
		return false
	}
	of[login] = oldest{client.Start, client.PID}
	return true
}

// prune forgets the processes that have ended: they adopt nothing any more.
func (o *orphans) prune() {
	maps.DeleteFunc(o.heard, func(p string, _ map[uint32]oldest) bool { return peer.Gone(p) })
}

func (o *orphans) save() {
	o.saved.Lock()
	defer o.saved.Unlock()
	o.mu.Lock()
	b, err := json.Marshal(o.heard)
	o.mu.Unlock()
	if err == nil {
		err = durable.ReplaceAt(o.path, b)
	}
	if err != nil {
		o.log.Warn("the list of clients could not be stored; after a restart an orphan of one may be taken for a terminal", "err", err)
	}
}

// leftBehind reports whether one of the processes of a chain may be what a client left
// behind, or may have been started on a client's request.
func (o *orphans) leftBehind(chain []string) bool {
	kin, err := peer.Kinship(chain)
	if err != nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := 1; i < len(kin); i++ {
		if o.adopted(kin[i], kin[i-1]) {
			return true
		}
	}
	return false
}

// adopted reports whether child may have come below parent as an orphan of a client, or
// on its request. The caller holds mu.
func (o *orphans) adopted(parent, child peer.Kin) bool {
	of := o.heard[parent.Instance]
	asked := startsOnRequest(parent)
	if asked || len(o.heard) >= mostForebears {
		of = o.heard[peer.First()]
	}
	for login, since := range of {
		if child.Start < since.Start || (child.Start == since.Start && child.PID == since.PID) || !asked && login != peer.NoLogin && login != child.Login {
			continue
		}
		if asked || parent.PID == 1 || !born(parent, child) {
			return true
		}
	}
	return false
}

// born reports whether a process was started by its parent, rather than adopted: it is in
// the parent's session, or leads one whose terminal the parent made, as the shells of a
// terminal emulator do. The first is no proof below a parent that adopts orphans and
// shares its session with a client.
func born(parent, child peer.Kin) bool {
	return child.Session == parent.Session || child.Leads() && peer.HoldsTerminal(parent, child)
}

// startsOnRequest reports whether a process starts programs for whoever asks: the user's
// service manager, message buses, job schedulers and terminal multiplexers. The name is
// the process's own choice, and only refuses.
func startsOnRequest(k peer.Kin) bool {
	switch k.Name {
	case "systemd":
		return k.PID != 1
	case "dbus-daemon", "dbus-broker-lau", "atd", "cron", "crond", "anacron", "fcron", `tmux:\x20server`, "screen", "SCREEN":
		return true
	}
	return false
}
