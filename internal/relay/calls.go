package relay

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// calls takes requests through the gate to their servers, and the answers back.
type calls struct {
	gate        *gate.Gate
	seal        *seal.Sealer
	log         *slog.Logger
	note        func(*audit.Record)
	watch       watch
	parkFor     time.Duration // how long a parked call waits for its client
	acts        *acts
	leaving     *leaving
	failures    *failures
	holding     *holding
	translation *translation
	levels      *levels
	sessions    *sessions
}

// noteFindings records what a call's messages held.
func (k *calls) noteFindings(x *front.Exchange, t target, pass gate.Pass) {
	for _, f := range t.found.Take() {
		k.note(gate.Finding(k.acts.on(x, t.Target), pass.Ref, f.Rule, f.Result, f.N))
	}
}

// isHeld reports whether a server has done nothing, since policy holds what was asked for.
func isHeld(err error) bool {
	var held *gate.Held
	return errors.As(err, &held)
}

// labelled passes the caller's project on to a server that is part of the daemon.
func labelled(x *front.Exchange, b *backend, req *upstream.Request) {
	if b.Builtin != nil && x.Namespace != "" {
		req.Headers = http.Header{protocol.HeaderNamespace: {x.Namespace}}
	}
}
