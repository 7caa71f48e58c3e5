package daemon

import (
	"maps"
	"sync"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// orphans decides whether a process may be one that an MCP client left behind. The kernel
// keeps no record of a parent that has ended, so this is decided by exclusion: a process is
// younger than all its ancestors and in the same login. An orphan is adopted by a process
// that is above the client. For each process above a client, the start of the oldest client
// below it is therefore remembered, also after the client has ended and in the next run of
// the daemon.
type orphans struct {
	mu          sync.Mutex
	oldestBelow map[string]map[uint32]oldest // process above a client -> login of the client -> the oldest one
}

// oldest is the start and the pid of the oldest client.
type oldest struct {
	Start uint64 `json:"start"`
	PID   int32  `json:"pid"`
}

// mostForebears and mostLogins bound the memory. Beyond them an entry counts for all
// processes, or for all logins, so more is refused.
const mostForebears, mostLogins = 4096, 256

// note remembers a client by its chain, which begins with the client. Of the processes above
// it only the names are needed: one that has ended adopts no process. done means that all of
// them are remembered, for the login that is returned.
func (o *orphans) note(chain []string) (changed bool, login uint32, done bool) {
	kin, err := peer.Kinship(chain[:min(len(chain), 1)])
	if err != nil || len(kin) == 0 {
		return false, 0, false // it has ended, or this system has no Kinship and refuses every process
	}
	client := kin[0]
	o.mu.Lock()
	defer o.mu.Unlock()
	changed = o.add(peer.First(), client) // the first process is above all, even if the chain is incomplete
	for _, forebear := range chain[1:] {
		changed = o.add(forebear, client) || changed
	}
	return changed, client.Login, len(o.oldestBelow) < mostForebears
}

// add notes that a client is below a process. The caller holds mu.
func (o *orphans) add(forebear string, client peer.Kin) (changed bool) {
	if o.oldestBelow == nil {
		o.oldestBelow = map[string]map[uint32]oldest{}
	}
	of := o.oldestBelow[forebear]
	if of == nil {
		if len(o.oldestBelow) >= mostForebears {
			o.prune()
		}
		if len(o.oldestBelow) >= mostForebears {
			return false // full: adopted then uses the entry of the first process
		}
		of = map[uint32]oldest{}
		o.oldestBelow[forebear] = of
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

// prune drops the processes that have ended, because they adopt no process.
func (o *orphans) prune() {
	maps.DeleteFunc(o.oldestBelow, func(p string, _ map[uint32]oldest) bool { return peer.Gone(p) })
}

// leftBehind reports whether a process of the chain may have been left behind by a client, or
// started at a client's request.
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

// adopted reports whether child may have come below parent as an orphan of a client, or at a
// client's request. The caller holds mu.
func (o *orphans) adopted(parent, child peer.Kin) bool {
	of := o.oldestBelow[parent.Instance]
	asked := startsOnRequest(parent)
	if asked || len(o.oldestBelow) >= mostForebears {
		of = o.oldestBelow[peer.First()]
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

// born reports whether parent started child instead of adopting it: child is in the parent's
// session, or leads a session on a terminal that the parent made, as the shells of a terminal
// emulator do. The first proves nothing below a parent that adopts orphans and shares its
// session with a client.
func born(parent, child peer.Kin) bool {
	return child.Session == parent.Session || child.Leads() && peer.HoldsTerminal(parent, child)
}

// startsOnRequest reports whether a process starts programs at the request of others: the
// user's service manager, message buses, job schedulers and terminal multiplexers. The
// process chooses its name, so it may only refuse.
func startsOnRequest(k peer.Kin) bool {
	switch k.Name {
	case "systemd":
		return k.PID != 1
	case "dbus-daemon", "dbus-broker-lau", "atd", "cron", "crond", "anacron", "fcron", `tmux:\x20server`, "screen", "SCREEN":
		return true
	}
	return false
}
