// Package pin keeps a manifest of what each server offers: the definitions of its
// tools, prompts, resources and resource templates, its instructions, and, for a
// child process, the command. Definitions that a person or the first use approved
// are offered; new and changed ones are withheld until they are approved too.
//
// Invariant: nothing is offered that the manifest on disk does not hold with the same digest.
// An approval approves exactly the digest that was shown. A manifest that cannot be read or
// written approves nothing. An item can be used only under the spelling of its name that
// clients see.
package pin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// Reason says why something is withheld; "": it is not.
type Reason string

// The reasons.
const (
	Changed    Reason = "changed"    // differs from what was approved
	New        Reason = "new"        // did not exist when the rest was approved
	Unapproved Reason = "unapproved" // nothing was approved yet
	Refused    Reason = "refused"    // cannot be approved: see Withheld.Detail
	Damaged    Reason = "damaged"    // the manifest cannot be read
	Unlisted   Reason = "unlisted"   // the server does not offer it
)

// Rule returns the rule in the record of an act that was withheld.
func (r Reason) Rule() string {
	if r == New {
		r = Changed
	}
	return RulePrefix + string(r)
}

// RulePrefix begins the rules that records have for reasons.
const RulePrefix = "pin."

// ErrWithheld is wrapped by the error for something that is withheld.
var ErrWithheld = errors.New("withheld until it is approved")

// Options configures a book.
type Options struct {
	Dir  string       // directory of the manifests, made if it is missing
	Log  *slog.Logger // nil: slog.Default
	Note func(Note)   // takes notes for the record; nil: they are dropped
}

// Note is an event of an offer, for the record.
type Note struct {
	Server string
	Item   string // "" for a whole list
	What   string // pin.approved, pin.withheld, pin.cleaned, pin.removed, pin.unnoted
	Rule   string
	Reason string
	Count  int64
}

// Book holds the manifests of all servers.
type Book struct {
	o     Options
	place *durable.Pinned // where the manifests are
	files files

	mu      sync.Mutex
	records map[string]*record
	guards  map[string]*Guard
	servers []string // all configured servers, for their prefixes
}

// Open makes the directory of the manifests, private to this user.
func Open(o Options) (*Book, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Note == nil {
		o.Note = func(Note) {}
	}
	dir, err := peer.PrivateDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("directory of the manifests: %w", err)
	}
	if err := dir.Close(); err != nil {
		return nil, fmt.Errorf("directory of the manifests: %w", err)
	}
	place, err := durable.Pin(filepath.Join(o.Dir, "manifest"))
	if err != nil {
		return nil, fmt.Errorf("directory of the manifests: %w", err)
	}
	return &Book{o: o, place: place, records: make(map[string]*record), guards: make(map[string]*Guard)}, nil
}

// SetServers sets the names of the configured servers: none of them may offer a name in the
// prefix of another.
func (b *Book) SetServers(names []string) {
	names = slices.Sorted(slices.Values(names))
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Equal(names, b.servers) {
		return
	}
	b.servers = names
	for _, r := range b.records {
		r.epoch.Add(1)
	}
}

// Close records the first uses that were not recorded yet.
func (b *Book) Close() {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.records))
	b.mu.Unlock()
	for _, r := range all {
		r.tellFresh()
	}
}

func (b *Book) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.servers
}

// Guard returns the guard of one server. An unchanged server keeps its guard, so that a
// reload changes nothing about it.
func (b *Book) Guard(server string, manual bool, p *Process) *Guard {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.guards[server]; g != nil && g.manual == manual && g.process.equal(p) {
		return g
	}
	g := &Guard{record: b.record(server), manual: manual, process: p}
	g.record.epoch.Add(1)
	b.guards[server] = g
	return g
}

// record returns the state of one server, read from its manifest on first use. The caller
// holds mu.
func (b *Book) record(server string) *record {
	r := b.records[server]
	if r == nil {
		r = newRecord(b, server, server+".json")
		b.records[server] = r
	}
	return r
}

// guard returns the guard in force for a server, or nil.
func (b *Book) guard(server string) *Guard {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.guards[server]
}

// known returns the state of a server that has had a guard, or nil.
func (b *Book) known(server string) *record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.records[server]
}

// Withheld is one item that is not offered. Before and After are definitions in canonical
// form; nil: there is none.
type Withheld struct {
	Item   string `json:"item"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail,omitempty"` // of a refusal
	Digest string `json:"digest"`           // of After; an approval has to repeat it
	Before raw    `json:"before,omitempty"`
	After  raw    `json:"after,omitempty"`
	// Was and Is are the approved and the present arguments of a command, in the form that
	// may be shown; nil: they are not known.
	Was []string `json:"was,omitempty"`
	Is  []string `json:"is,omitempty"`
}

// Approval approves one item as it was shown.
type Approval struct {
	Item   string `json:"item"`
	Digest string `json:"digest"`
}

func (d digest) String() string { return hex.EncodeToString(d[:]) }
