package relay

import (
	"context"
	"log/slog"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
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
	rank := era.Severity(era.LevelOf(x))
	if x.Era != front.Modern || c.era != front.Legacy || rank < 0 || !c.logsFrom(rank) {
		return
	}
	params := rawjson.Set(nil, rawjson.Edit{Key: "level", Value: []byte(era.Levels[rank])})
	v.set(ctx, &front.Exchange{Who: x.Who, Size: int64(len(params)), Confirmed: x.Confirmed}, b, c, params)
}

// set sets a log level at a legacy server, if policy lets the client set it there.
func (v *levels) set(ctx context.Context, x *front.Exchange, b *backend, c *liveConn, params []byte) {
	req := upstream.Request{Method: "logging/setLevel", Params: params}
	pass, err := v.gate.Enter(v.acts.of(x, b.Name, req.Method, ""))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	word := "ok"
	if _, err := c.conn.Call(ctx, &req, nil); err != nil {
		v.log.Debug("setting the log level failed", "server", b.Name, "err", err)
		word = "failed"
	}
	pass.Leave(word, 0)
}

// logsFrom notes that the server has to write messages of a rank, and reports whether it has
// to be told.
func (c *liveConn) logsFrom(rank int) bool {
	if wire.GetPath(c.hello, "capabilities", "logging") == nil {
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
