package relay

import (
	"context"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// levels are the severities of log messages, least first (RFC 5424).
var levels = []string{`"debug"`, `"info"`, `"notice"`, `"warning"`, `"error"`, `"critical"`, `"alert"`, `"emergency"`}

// severity is the rank of a raw log level, -1 for an invalid one.
func severity(raw []byte) int {
	for i, l := range levels {
		if string(raw) == l {
			return i
		}
	}
	return -1
}

// levelOf is the log level that a modern request names, raw; nil: none.
func levelOf(x *front.Exchange) []byte {
	return wire.GetPath(x.Params, "_meta", wire.MetaLogLevel)
}

// hearsLog decides whether a modern client gets a log message with its call:
// only if that request named a level, and the message is at or above it
// (Logging).
func hearsLog(x *front.Exchange, message []byte) bool {
	least := severity(levelOf(x))
	return least >= 0 && severity(wire.Get(message, "level")) >= least
}

// hearer is who hears a legacy server's log messages with a request: each client once
// for each level that it names. Empty: the request hears none.
func hearer(x *front.Exchange) string {
	level := levelOf(x)
	if x.Era != front.Modern || severity(level) < 0 {
		return ""
	}
	return x.Who.Key() + " " + string(level)
}

// raise has a legacy server write the log messages that a modern request names. The
// level of a connection is the most verbose one that any request has named, and each
// client gets what it asked for.
func (l *link) raise(ctx context.Context, x *front.Exchange, c *liveConn) {
	rank := severity(levelOf(x))
	if x.Era != front.Modern || c.era != front.Legacy || rank < 0 || !c.logsFrom(rank) {
		return
	}
	params := rawjson.Set(nil, rawjson.Edit{Key: "level", Value: []byte(levels[rank])})
	l.r.setLevel(ctx, &front.Exchange{Who: x.Who, Size: int64(len(params)), Confirmed: x.Confirmed}, l.b, c, params)
}

// logsFrom notes that the server has to write messages of a rank, and reports whether
// it has not been told yet.
func (c *liveConn) logsFrom(rank int) bool {
	if wire.GetPath(c.hello, "capabilities", "logging") == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	verbosity := len(levels) - rank
	if c.verbosity >= verbosity {
		return false
	}
	c.verbosity = verbosity
	return true
}

// setLevel tells a legacy server a log level, if policy lets the client set it there.
func (r *Relay) setLevel(ctx context.Context, x *front.Exchange, b *backend, c *liveConn, params []byte) {
	req := upstream.Request{Method: "logging/setLevel", Params: params}
	pass, err := r.gate.Enter(r.act(x, b.Name, req.Method, ""))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	word := "ok"
	if _, err := c.conn.Call(ctx, &req, nil); err != nil {
		r.log.Debug("setting the log level failed", "server", b.Name, "err", err)
		word = "failed"
	}
	pass.Leave(word, 0)
}
