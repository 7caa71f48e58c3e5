package relay

import (
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// Server is the configuration of one server.
type Server struct {
	Name      string
	Kind      string // stdio, http, sse or builtin: for status
	Upstream  *upstream.Server
	Instances string // auto, session, principal or shared
	// PerSession: the program is known to keep state for each session, so that under auto no
	// sessions share its process.
	PerSession bool
	Protocol   string // auto, legacy or modern
	// MaxInstances bounds live connections (children) to this server,
	// MaxConcurrency the calls in flight. 0: no bound.
	MaxInstances, MaxConcurrency int
	// SparesOwn: the calls of the principals that Options.Own names are not counted against
	// MaxConcurrency.
	SparesOwn bool
	// MaxStreams bounds the clients' open listens; 0: no bound.
	MaxStreams int
	// SignIn reports whether a person has to sign in before the server answers. nil: the
	// server needs no sign-in.
	SignIn SignIn
	// Timeout bounds how long one call waits for a connection; the upstream's own bounds the
	// call on it. 0: no bound.
	Timeout time.Duration
	// Refused is why this server cannot be used, for status; the other servers run.
	Refused string
	// Pin decides which definitions may be used; nil: all. Scan searches the messages; nil:
	// no search.
	Pin  *pin.Guard
	Scan *scan.Scanner
	// Builtin is a server that is part of the daemon; it takes the place of Upstream. Source
	// is the source of its records.
	Builtin Builtin
	Source  string
	// Needs lists actions of a built-in server, separated by spaces. A caller that is allowed
	// none of them does not see the server.
	Needs string
}

// spares reports whether a caller's calls are not counted against max_concurrency.
func (s *Server) spares(own func(string) bool, who *principal.Principal) bool {
	return s.SparesOwn && own != nil && own(who.Name())
}

// SignIn reports the state of the sign-in at a server.
type SignIn interface {
	Needs() (what string, trouble error)
}

// KindBuiltin is the kind of a server that is part of the daemon.
const KindBuiltin = "builtin"

// Builtin is a server that is part of the daemon. It is called like any other server, and in
// addition gets the caller's principal.
type Builtin interface {
	// Open begins a connection in the client's era: one for each legacy session, named by its
	// digest, and one with session "" for all requests without a session of one principal and
	// process. on receives the server's messages outside of calls. hello is the
	// InitializeResult or the DiscoverResult. Closing the connection of a session ends that
	// session. Requests of clients carry the pass that let them in, and each
	// subscriptions/listen of a client is one of its own.
	Open(who *principal.Principal, session string, modern bool, on func(upstream.Event)) (conn upstream.Conn, hello []byte)
}
