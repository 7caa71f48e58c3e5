// Package deliver delivers protected instructions to authenticated sessions: the
// built-in MCP server `instructions`, the routes under /auth/, and the greeting
// of the aggregate.
//
// It keeps guidance out of binaries and off disks other than its store's, and
// makes every reader of it known.
//
// Invariants: no protected text is sent without a gate decision and its record,
// and without the preamble and a ref of its own. A caller without a valid token
// gets the generic text or an error, and never learns which check failed. A
// document that the reader may not have looks like one that does not exist. A
// store that is down costs guidance, never tools, unless the operator asked for
// that (fail_closed).
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

// Why a reader gets less than there is, in words that a model and an operator
// may see.
const (
	NoToken      = "no_token"
	Expired      = "expired"
	Unreachable  = "store_unreachable"
	NotPermitted = "not_permitted"
)

// GreetingBytes is the most that a client shows its model of a greeting:
// Claude Code cuts server instructions at 2,048 characters.
const GreetingBytes = 2048

// Library is where documents come from (library.Library).
type Library interface {
	Ready(ctx context.Context) error
	Set() (*document.Set, library.State)
	Lookup(name, ref string) ([]*document.Document, error)
	Deliver(ctx context.Context, d library.Delivery) error
}

// Keeper keeps the sessions (session.Keeper).
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

// Options are what the server is built from.
type Options struct {
	// Without a Library the store is not there yet: Equip gives it later. Wanted:
	// somebody counts on it, so that what it would have given is missing until then.
	Library  Library
	Shelf    *library.Library // the same, for the operator's acts
	Sessions Keeper
	Wanted   bool
	Gate     *gate.Gate

	CanaryKey []byte           // of refs; it outlives a restart
	Refs      *watermark.Index // of what was and is delivered
	// Records is the record up to now, the last line first; nil: none.
	Records func(context.Context) iter.Seq2[[]byte, error]
	Mode    watermark.Mode // what happens to a ref that leaves

	Version     string
	Environment string // of this daemon, for audiences
	FailClosed  bool
	RuntimeDir  string // where session files are; swept

	// Above names the process behind a request and all above it, in the form
	// of peer.Ancestors; complete is false where they cannot be told to the end,
	// as never over TCP.
	Above func(*http.Request) (processes []string, complete bool)
	// Held names the process that holds the other end of a TCP connection and all
	// above it, in the same form; told is false where that cannot be told, as of
	// a caller on another machine. nil: it never can.
	Held func(*http.Request) (processes []string, told bool)
	// Instance is the process behind a request on the Unix socket, in the same
	// form, as far as that is known without looking; nil: it never is.
	Instance func(*http.Request) string
	// Unix reports whether a request came by the Unix socket.
	Unix func(*http.Request) bool
	// Bearer is the principal of a bearer token that was made for TCP, wherever
	// it is shown: a token of ours or of the issuer. It counts failures.
	Bearer func(r *http.Request, token string) (*principal.Principal, error)
	// Shell refuses an operator's act that comes from below a registered agent;
	// ErrStore: the database that knows them is away.
	Shell func(ctx context.Context, processes []string, complete bool) error
	// Refused records a token that was presented and is not good; reason is a
	// constant.
	Refused func(r *http.Request, reason string)
	// Local reports whether a request came by a listener of this machine alone;
	// nil: never.
	Local func(*http.Request) bool
	// Named is the principal that a bearer token of that name has now; nil:
	// there is none. nil: there never is.
	Named func(name string) *principal.Principal
	// Own reports whether a principal is the daemon's own user; nil: none is.
	Own func(*principal.Principal) bool
	// Holds reports whether what proved a principal still does.
	Holds func(*principal.Principal) bool

	Log *slog.Logger
	Now func() time.Time
}

// Reader is somebody who may get protected text: by the token of a session, or
// as a bearer token's own principal.
type Reader struct {
	Who     *principal.Principal // who reads: as the connection or the token proves it
	Beside  *principal.Principal // the connection, where a session of another principal came by it; else nil
	Session *session.Session     // nil: a bearer token reads without one
	Scope   []string             // the tiers
	MCP     string               // digest of the MCP session, for the record; may be empty
	Holds   bool                 // what policy holds for the operator can wait: it is in what the reader sees
}

// key names a reader where its texts and refs are kept: a session's id, or the
// principal's name.
func (r *Reader) key() string {
	if r.Session != nil {
		return r.Session.ID
	}
	return r.Who.Name()
}

// connection is who acts, for the gate and its records.
func (r *Reader) connection() *principal.Principal {
	if r.Beside != nil {
		return r.Beside
	}
	return r.Who
}

// atOnce is the reader where nothing can wait for the operator: it sees nothing that is held.
func (r *Reader) atOnce() *Reader {
	in := *r
	in.Holds = false
	return &in
}

// nameSession is the composed text in records, refs, prompts and resources. No
// document has that name.
const nameSession = "session"

// MaxComposed is the most bytes of the composed text that a reader can ask for,
// minComposed the fewest.
const (
	MaxComposed = 65536
	minComposed = document.MinBytes
)

// order is what a reader asks for.
type order struct {
	action         string // actionRead or actionRender
	name           string
	max            int    // bytes of the composed text; 0: the document of that name
	source         bool   // as it is written, not as a model is to read it
	version, label string // empty: production
	vars           []byte // raw, of actionRender
}

// composed is the order of the composed text.
func composed(max int) order {
	if max <= 0 {
		max = GreetingBytes
	}
	return order{action: actionRead, name: nameSession, max: min(max, MaxComposed)}
}

// Text is one delivered text. With Degraded set it is the generic one.
type Text struct {
	Body     string // dressed: preamble, text, ref
	Preamble string
	Bare     string // the text alone
	Ref      string
	Revision string   // of the reader's view
	Version  string   // of a template
	Tier     string   // of a template, with what it includes
	Names    []string // the documents in it
	Cut      bool
	Degraded string
	Document *document.Document // of a template
}

var (
	// ErrNotFound: there is no such text for this reader, whatever there is for
	// others.
	ErrNotFound = errors.New("no such text for this reader")
	// ErrStore: the store is not to be had, and the reader was given nothing
	// before.
	ErrStore = errors.New("the instruction store is not available")
	// ErrEnded: the reader's session has ended since the door looked.
	ErrEnded = errors.New("the session has ended")
)

const (
	// patience is the longest that anybody waits for the store, and how long after
	// the start somebody does. With what comes after, a greeting takes less than
	// the two seconds that it may.
	patience = 1500 * time.Millisecond
	// sweepEvery is within the five seconds in which what belongs to an ended
	// session has to be gone, whatever was missed before.
	sweepEvery = 3 * time.Second
	// refsKept is how long a ref is known, as long as the row of its session.
	refsKept = 30 * 24 * time.Hour
)
