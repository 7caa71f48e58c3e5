// Package deliver delivers protected instructions to authenticated sessions: the built-in
// MCP server `instructions`, the routes under /auth/, and the greeting of the aggregate.
//
// It exists so that guidance is in no binary and on no disk other than its store's, and
// every reader of it is known.
//
// Invariants: no protected text is sent without a gate decision and its record, and
// without the preamble and a ref of its own. A caller without a valid token gets the
// generic text or an error, and never learns which check failed. A document that the
// reader may not read looks like one that does not exist. An unavailable store costs
// guidance, never tools, unless the operator requires it (fail_closed).
package deliver

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// ServerName is the name of the built-in server.
const ServerName = "instructions"

// source is the source of the records of this package.
const source = "instruct"

// The actions that policy decides on.
const (
	actionSession    = "instructions.session"
	actionRead       = "instructions.read"
	actionRender     = "instructions.render"
	actionBehavioral = "instructions.behavioural"
	actionStructural = "instructions.structural"
)

// Reasons for which a reader gets a replacement for a fuller text, in words for models
// and operators.
const (
	NoToken      = "no_token"
	Expired      = "expired"
	Unreachable  = "store_unreachable"
	NotPermitted = "not_permitted"
)

// GreetingBytes is the size of a greeting that every client shows its model in full:
// Claude Code cuts server instructions at 2,048 characters.
const GreetingBytes = 2048

// Library is the source of documents (library.Library).
type Library interface {
	Ready(ctx context.Context) error
	Set() (*document.Set, library.State)
	Lookup(name, ref string) ([]*document.Document, error)
	Deliver(ctx context.Context, d library.Delivery) error
}

// Keeper manages the sessions (session.Keeper).
type Keeper interface {
	Check(token string, c session.Caller) (*session.Session, error)
	Find(id string) (session.Session, bool)
	Sessions() []session.Session
	Done(id string) <-chan struct{}
	Issue(ctx context.Context, r session.Request, note session.Note) (string, *session.Session, error)
	Renew(ctx context.Context, s *session.Session, note session.Note) (string, *session.Session, error)
	End(ctx context.Context, id, reason string, note session.Note) (*session.Session, error)
	Stats() session.Stats
}

// Options configure a Server.
type Options struct {
	// Library is the store; nil: Equip gives it later. Wanted: a store is configured, so
	// that texts count as missing until Equip.
	Library  Library
	Shelf    *library.Library // the same, for the operator's acts
	Sessions Keeper
	Wanted   bool
	Gate     *gate.Gate

	CanaryKey []byte           // key of refs; kept over restarts
	Refs      *watermark.Index // refs of delivered texts
	// Records are the audit records so far, newest first; nil: none.
	Records func(context.Context) iter.Seq2[[]byte, error]
	Mode    watermark.Mode // the action for a ref that leaves

	Version     string
	Environment string // of this daemon, for audiences
	FailClosed  bool
	RuntimeDir  string // the directory of session files, which are swept

	// Above returns the process behind a request and its ancestors, in the form of
	// peer.Ancestors; complete is false if they cannot be read to the end, as always over
	// TCP.
	Above func(*http.Request) (processes []string, complete bool)
	// Held returns the process at the other end of a TCP connection and its ancestors, in
	// the same form; told is false if they cannot be determined, as for a caller on
	// another machine. nil: always.
	Held func(*http.Request) (processes []string, told bool)
	// Instance returns the process behind a request on the Unix socket, in the same
	// form, if it is known without a look-up; nil: never.
	Instance func(*http.Request) string
	// Unix reports whether a request came by the Unix socket.
	Unix func(*http.Request) bool
	// Bearer returns the principal of a bearer token for TCP, wherever it is shown: a
	// token of Doorward or of the issuer. It counts failures.
	Bearer func(r *http.Request, token string) (*principal.Principal, error)
	// Shell refuses an operator's act that comes from below a registered agent. ErrStore:
	// the database of the agents is unavailable.
	Shell func(ctx context.Context, processes []string, complete bool) error
	// Refused records a token that was shown and is not valid; reason is a constant.
	Refused func(r *http.Request, reason string)
	// Local reports whether a request came by a listener that only this machine can
	// reach; nil: never.
	Local func(*http.Request) bool
	// Named returns the principal that the bearer token of that name has now; nil: there
	// is none. A nil function means that there is none.
	Named func(name string) *principal.Principal
	// Own reports whether a principal is the daemon's own user; nil: none is.
	Own func(*principal.Principal) bool
	// Holds reports whether the proof of a principal is still valid.
	Holds func(*principal.Principal) bool

	Log *slog.Logger
	Now func() time.Time
}

// Reader is a caller that may get protected text: by the token of a session, or as the
// principal of a bearer token.
type Reader struct {
	Who     *principal.Principal // the reading principal, proved by the connection or the token
	Beside  *principal.Principal // the connection, if another principal's session came by it; or nil
	Session *session.Session     // nil: the reader has a bearer token and no session
	Scope   []string             // the tiers
	MCP     string               // digest of the MCP session, for the record; may be empty
	Holds   bool                 // acts can wait for the operator, so held documents are visible
}

// key returns the key under which a reader's texts and refs are stored: the session's id,
// or the principal's name.
func (r *Reader) key() string {
	if r.Session != nil {
		return r.Session.ID
	}
	return r.Who.Name()
}

// connection returns the principal of the connection, for the gate and its records.
func (r *Reader) connection() *principal.Principal {
	if r.Beside != nil {
		return r.Beside
	}
	return r.Who
}

// atOnce returns the reader for an act that cannot wait for the operator: it sees no held
// document.
func (r *Reader) atOnce() *Reader {
	in := *r
	in.Holds = false
	return &in
}

// nameSession is the name of the composed text in records, refs, prompts and resources.
// No document has that name.
const nameSession = "session"

// MaxComposed and minComposed bound the size of the composed text that a reader can ask
// for, in bytes.
const (
	MaxComposed = 65536
	minComposed = document.MinBytes
)

// order is a request for a text.
type order struct {
	action         string // actionRead or actionRender
	name           string
	max            int    // bytes of the composed text; 0: the document of that name
	source         bool   // the source text, not the rendered one
	version, label string // empty: production
	vars           []byte // raw JSON, for actionRender
}

// composed returns the order of the composed text.
func composed(max int) order {
	if max <= 0 {
		max = GreetingBytes
	}
	return order{action: actionRead, name: nameSession, max: min(max, MaxComposed)}
}

// Text is one delivered text. With Degraded set it is the generic text.
type Text struct {
	Body     string // dressed: preamble, text, ref
	Preamble string
	Bare     string // the text without preamble and ref
	Ref      string
	Revision string   // of the reader's view
	Version  string   // of a template
	Tier     string   // of a template, with the documents that it includes
	Names    []string // the documents in it
	Cut      bool
	Degraded string
	Document *document.Document // of a template
}

var (
	// ErrNotFound: there is no such text for this reader, whether or not other readers
	// have it.
	ErrNotFound = errors.New("no such text for this reader")
	// ErrStore: the store is unavailable, and the reader was given nothing before.
	ErrStore = errors.New("the instruction store is not available")
	// ErrEnded: the reader's session has ended since it was checked.
	ErrEnded = errors.New("the session has ended")
)

const (
	// patience bounds the wait of a request for the store, and the time after the start
	// in which requests wait at all. It leaves room for the rest of a greeting, which has
	// two seconds.
	patience = 1500 * time.Millisecond
	// sweepEvery is less than the five seconds in which the state of an ended session has
	// to be removed, even if an event was missed.
	sweepEvery = 3 * time.Second
	// refsKept is how long a ref is known: as long as the row of its session.
	refsKept = 30 * 24 * time.Hour
)
