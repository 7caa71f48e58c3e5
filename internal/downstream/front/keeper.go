package front

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Keeper stores sessions for the next run of the daemon. Find returns fs.ErrNotExist for an
// unknown name. Keeper reports its own write errors.
type Keeper interface {
	Keep(name string, content []byte)
	Find(name string) ([]byte, error)
	Used(name string)
	Drop(name string) bool
}

// kept is the stored form of a session.
type kept struct {
	Init  json.RawMessage `json:"init"`            // state of the Handler
	State json.RawMessage `json:"state,omitempty"` // what the Handler remembers
}

// nameOf returns the key of a stored session: a digest of id, server and principal. A
// request that differs in one of them finds nothing.
func nameOf(id string, who *principal.Principal, server string) string {
	h := sha256.New()
	for _, part := range []string{id, server, who.Key()} {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// place is the stored copy of one session. The zero place stores nothing.
type place struct {
	keeper Keeper
	name   string
	marked time.Time // time of the last Used
}

// placeOf returns the place of a session over Streamable HTTP. A session that belongs to one
// process, on the Unix socket, is not stored: the program of that process would have to be
// compared after a restart, and `doorward connect` opens a new session by itself.
func placeOf(keeper Keeper, s *Session) place {
	if keeper == nil || s.transport != overStreamable || s.Who.Key() != s.Who.Name() {
		return place{}
	}
	return place{keeper: keeper, name: nameOf(s.id, s.Who, s.Server)}
}

// keep stores a session. If storing fails, the session works until the daemon ends.
func (p *place) keep(s *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.keeper == nil || s.closed {
		return
	}
	if text, err := json.Marshal(kept{Init: s.Init.Params(), State: s.Remembered()}); err == nil {
		p.keeper.Keep(p.name, text)
	}
}

// used marks the stored session as used, at most once every usedEvery.
func (p *place) used(now time.Time) {
	if p.keeper == nil || now.Sub(p.marked) < usedEvery {
		return
	}
	p.marked = now
	p.keeper.Used(p.name)
}

const usedEvery = 5 * time.Minute

func (p *place) drop() {
	if p.keeper != nil {
		p.keeper.Drop(p.name)
	}
}

// Remember stores the state of the Handler that a session needs after a restart; state is one
// JSON value. An empty state means that the Handler cannot continue the session: it ends with
// the daemon, and its client has to open a new one.
func (s *Session) Remember(state []byte) {
	s.state.Store(state)
	if len(state) == 0 {
		s.place.drop()
		return
	}
	s.place.keep(s)
}

// Remembered returns the last state given to Remember, also in an earlier run; nil: none.
func (s *Session) Remembered() []byte {
	state, _ := s.state.Load().([]byte)
	return state
}
