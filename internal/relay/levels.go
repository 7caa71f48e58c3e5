package relay

import (
	"context"
	"errors"
	"log/slog"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// levels sets the log levels that clients ask for at legacy servers.
type levels struct {
	gate *gate.Gate
	acts *acts
	log  *slog.Logger
}

// raise makes a legacy server write the log messages that a modern request names. The level
// of a connection is the most verbose one that any request has named; each client receives
// only the messages that it asked for.
func (v *levels) raise(ctx context.Context, x *front.Exchange, b *backend, c *liveConn) {
	if x.Era != front.Modern || c.era != front.Legacy {
		return
	}
	rank := era.Severity(era.LevelOf(x))
	if rank < 0 || !c.logsFrom(rank) {
		return
	}
	params := rawjson.Set(nil, rawjson.Edit{Key: "level", Value: []byte(era.Levels[rank])})
	x = &front.Exchange{Who: x.Who, Size: int64(len(params)), SameProgram: x.SameProgram}
	c.accepted(rank, v.set(ctx, x, b, c, params))
}

// set sets a log level at a legacy server, if policy lets the client set it there. It reports
// whether the server has accepted it. One that does not answer in time counts as accepting:
// every further request would wait for it in vain.
func (v *levels) set(ctx context.Context, x *front.Exchange, b *backend, c *liveConn, params []byte) bool {
	req := upstream.Request{Method: "logging/setLevel", Params: params}
	pass, err := v.gate.Enter(v.acts.of(x, b.Name, req.Method, ""))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	word := "ok"
	reply, err := c.conn.Call(ctx, &req, nil)
	switch {
	case err != nil:
		word = "failed"
	case reply.Error != nil:
		word, err = "error", reply.Error
	}
	if err != nil {
		v.log.Debug("setting the log level failed", "server", b.Name, "err", err)
	}
	pass.Leave(word, 0)
	return err == nil || errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// logsFrom notes that the server has to write messages of a rank, and reports whether it has
// to be told. Whoever tells it then calls accepted.
func (c *liveConn) logsFrom(rank int) bool {
	if rawjson.GetPath(c.hello, "capabilities", "logging") == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	verbosity := len(era.Levels) - rank
	if c.verbosity >= verbosity {
		return false
	}
	c.verbosity = verbosity
	return true
}

// accepted notes whether the server has accepted that it writes messages of a rank. If not,
// it is told again when a client next asks for them.
func (c *liveConn) accepted(rank int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	verbosity := len(era.Levels) - rank
	switch {
	case ok:
		c.writes = max(c.writes, verbosity)
	case c.verbosity == verbosity:
		c.verbosity = c.writes
	}
}
