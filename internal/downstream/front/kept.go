package front

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// earlier finds the sessions of earlier runs of the daemon. Without a Keeper there are none.
type earlier struct {
	door    *Door
	keeper  Keeper
	opening singleflight.Group // by name
}

// found returns the session that a request names. It reopens a session of an earlier run. If
// s is nil, there is none and e is the answer.
func (y *earlier) found(r *http.Request, id string, who *principal.Principal, server string) (s *Session, e *wire.Error) {
	if s := y.door.sessions.find(id, who, server, overStreamable); s != nil {
		return s, nil
	}
	if y.keeper == nil || !wellFormedID(id) || y.door.sessions.has(id) {
		return nil, errUnknownSession
	}
	name := nameOf(id, who, server)
	_, err, _ := y.opening.Do(name, func() (any, error) { return nil, y.reopen(r, name, id, who, server) })
	var refused notReopened
	if errors.As(err, &refused) {
		return nil, refused.e
	}
	if s := y.door.sessions.find(id, who, server, overStreamable); s != nil {
		return s, nil
	}
	return nil, errUnknownSession
}

// notReopened is the error that the Handler returned when a session was reopened. The stored
// session is kept.
type notReopened struct{ e *wire.Error }

func (n notReopened) Error() string { return n.e.Message }

func (y *earlier) read(name string) (k kept, err error) {
	text, err := y.keeper.Find(name)
	if err != nil {
		return k, err
	}
	if json.Unmarshal(text, &k) != nil || len(k.Init) == 0 {
		return k, fs.ErrNotExist
	}
	return k, nil
}

// reopen opens a session of an earlier run under its id, with the initialize params that its
// client sent then. The Handler treats it as an initialize: it is decided and recorded, and
// the servers are started again. It does nothing if the session is open: another request may have
// reopened it between the look-up of this one and its turn.
func (y *earlier) reopen(r *http.Request, name, id string, who *principal.Principal, server string) error {
	if y.door.sessions.has(id) {
		return nil
	}
	k, err := y.read(name)
	if err != nil {
		return err
	}
	in := &inbound{r: r, who: who, server: server, size: int64(len(k.Init))}
	m := &wire.Message{Kind: wire.Request, ID: wire.IntID(0), Method: "initialize", Params: k.Init}
	if rule := y.door.sessions.reserve(who); rule != "" {
		return notReopened{streamable{y.door}.noRoom(&Exchange{Who: who, Server: server, Era: Legacy, Method: m.Method, Size: in.size}, rule).Error}
	}
	s := y.door.newSession(id, who, server, overStreamable)
	s.state.Store([]byte(k.State))
	goOn(s, y.door.sessions.now())
	if reply := (streamable{y.door}).open(context.WithoutCancel(r.Context()), s, in, m); !s.Init.answered.Load() {
		y.door.sessions.release(who)
		s.close()
		if reply.Error == nil { // the credential of the caller ended meanwhile
			return fs.ErrNotExist
		}
		return notReopened{reply.Error}
	}
	y.door.sessions.publish(s)
	return nil
}

// goOn sets the numbers of a session's streams, events and questions to the present time, so
// that none equals a number of the earlier run: an answer to an old question must not count
// as the answer to a new one.
func goOn(s *Session, now time.Time) {
	from := now.UnixMicro() // below 2^53, so every JSON parser can represent it
	s.main.base, s.streams, s.asked = uint64(from), uint64(from), from
}

// forgotten drops the stored copy of a session of an earlier run that was not reopened;
// false: there is none, or it negotiated another version than the request names.
func (y *earlier) forgotten(r *http.Request, who *principal.Principal, server string) bool {
	id := r.Header.Get("Mcp-Session-Id")
	if y.keeper == nil || !once(r.Header) || y.door.sessions.find(id, who, server, overStreamable) != nil {
		return false
	}
	name := nameOf(id, who, server)
	k, err := y.read(name)
	return err == nil && sameVersion(r.Header.Get("Mcp-Protocol-Version"), negotiated(k.Init)) && y.keeper.Drop(name)
}
