package pin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// record is the state of one server for all callers: digests of what was approved, and what
// is withheld now. The definitions themselves stay on disk.
type record struct {
	book         *Book
	server, name string                 // name is the manifest's file
	epoch        atomic.Uint64          // changes when earlier verdicts may no longer hold
	public       atomic.Pointer[public] // read without the lock

	mu       sync.Mutex
	fault    error // why the manifest approves nothing
	settled  map[string]bool
	approved map[string]digest
	open     map[string]*Withheld // with After, without Before; of all views
	views    map[*View]findings   // by connection; nil: of ended ones
	holders  holders
	size     int                 // bytes of After in open
	gone     map[string]bool     // approved, and no longer offered
	declared map[string]bool     // by absent: the server declares that kind now
	last     map[string]*Verdict // by Asker.settled
	edit     Edit                // change of the arguments that was approved last
	hasShown bool                // the manifest has the command's shown arguments
	notes    tally
	fresh    []string // first uses that are not noted yet
	freshN   int64    // number of their items
}

// public is the part of a record that calls read. It is replaced, never changed.
type public struct {
	withheld map[string]Reason
	fault    bool
	settled  [KindCount]bool
}

// ruleFirst is the rule in the record of a first use.
const ruleFirst = "trust: auto"

// maxOpen bounds the withheld definitions that are kept for display. Further ones are
// withheld too, and can be approved only after the kept ones are.
const maxOpen = 32 << 20

func newRecord(b *Book, server, name string) *record {
	r := &record{book: b, server: server, name: name, open: make(map[string]*Withheld), views: make(map[*View]findings), holders: make(holders), gone: make(map[string]bool), declared: make(map[string]bool),
		last: make(map[string]*Verdict)}
	m, err := readManifest(b.place, name, server)
	if err != nil {
		b.o.Log.Error("a manifest cannot be read: everything that this server offers is withheld until it is approved again",
			"server", server, "file", name, "err", err)
		r.fault, m = err, newManifest()
	}
	r.adopt(m)
	return r
}

// adopt sets what was approved from a manifest, and publishes it. The caller holds mu, or no
// other goroutine has the record.
func (r *record) adopt(m *manifest) {
	r.settled = m.settled
	r.approved = make(map[string]digest, len(m.items))
	for item, def := range m.items {
		r.approved[item] = digestOf(def)
	}
	r.publish()
}

// reason returns why an item is withheld, "" if it was approved unchanged. first: nothing of
// its kind has been used before. The caller holds mu.
func (r *record) reason(item string, d digest, first bool) Reason {
	have, ok := r.approved[r.basis(item)]
	switch {
	case r.fault != nil:
		return Damaged
	case ok && have == d:
		return ""
	case ok:
		return Changed
	case first:
		return Unapproved
	}
	return New
}

// approve adds definitions to the manifest on disk, and only then to the record. The caller
// holds mu.
func (r *record) approve(items map[string][]byte, settled ...string) error {
	m, err := newManifest(), error(nil)
	if r.fault == nil {
		if m, err = readManifest(r.book.place, r.name, r.server); errors.Is(err, durable.ErrMoved) {
			return err // the manifest is whole, elsewhere
		} else if err != nil {
			r.fail(err)
			return err
		}
	}
	maps.Copy(m.items, items)
	if items[itemCommand] != nil {
		m.shown = r.book.shown(r.server)
	}
	for _, s := range settled {
		m.settled[s] = true
	}
	if err := writeManifest(r.book.place, r.name, m.encode(r.server)); err != nil {
		return err
	}
	r.fault = nil
	r.adopt(m)
	for item := range items {
		delete(r.gone, item)
	}
	return nil
}

// fail makes the record approve nothing, because its manifest was damaged meanwhile. The
// caller holds mu.
func (r *record) fail(err error) {
	r.book.o.Log.Error("a manifest cannot be read any more: everything that this server offers is withheld", "server", r.server, "err", err)
	r.fault = err
	r.adopt(newManifest())
	r.epoch.Add(1)
}

// withhold notes an item that is not offered. The caller holds mu and publishes.
func (r *record) withhold(w *Withheld) {
	old := r.open[w.Item]
	if old != nil && old.Digest == w.Digest && old.Reason == w.Reason && old.Detail == w.Detail {
		return
	}
	r.release(w.Item)
	shown := *w
	w = &shown
	if r.size+len(w.After) > maxOpen {
		w.Reason, w.Detail, w.After = Refused, "more is withheld than can be shown: approve the rest first", nil
	}
	r.size += len(w.After)
	r.open[w.Item] = w
	before := "none"
	if d, ok := r.approved[r.basis(w.Item)]; ok {
		before = "sha256:" + d.String()
	}
	r.note(Note{Item: w.Item, What: "pin.withheld", Rule: w.Reason.Rule(), Reason: fmt.Sprintf("%s; before %s, after sha256:%s", w.Reason, before, w.Digest)})
}

func (r *record) release(item string) {
	if w := r.open[item]; w != nil {
		r.size -= len(w.After)
		delete(r.open, item)
	}
}

// publish makes the withheld items readable without the lock. The caller holds mu.
func (r *record) publish() {
	p := &public{fault: r.fault != nil}
	for k := range KindCount {
		p.settled[k] = r.settled[kindWords[k].settled]
	}
	if len(r.open) > 0 {
		p.withheld = make(map[string]Reason, len(r.open))
	}
	for item, w := range r.open {
		p.withheld[item] = w.Reason
	}
	r.public.Store(p)
}

// left notes items that were approved and are no longer offered. That is no danger, but worth
// knowing. The caller holds mu.
func (r *record) left(k Kind, offered map[string]bool) {
	for item := range r.approved {
		if !strings.HasPrefix(item, k.key("")) {
			continue
		}
		if offered[item] {
			delete(r.gone, item)
		} else if !r.gone[item] {
			r.gone[item] = true
			r.note(Note{Item: item, What: "pin.removed"})
		}
	}
}

// withheld returns what is withheld now, in order.
func (r *record) withheld() []Withheld {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Withheld, 0, len(r.open))
	for _, item := range slices.Sorted(maps.Keys(r.open)) {
		out = append(out, *r.open[item])
	}
	return out
}

// manifest returns what was approved, empty if it cannot be read.
func (r *record) manifest() *manifest {
	m, err := readManifest(r.book.place, r.name, r.server)
	if err != nil {
		return newManifest()
	}
	return m
}

// definitions returns the approved definitions, empty if they cannot be read.
func (r *record) definitions() map[string][]byte { return r.manifest().items }

// tally limits the notes of a server that changes all the time.
type tally struct {
	since time.Time
	count int
	lost  int64
}

// notesAMinute bounds the notes of one server that are written in full each minute.
const notesAMinute = 64

// note sends a note to the record. The caller holds mu.
func (r *record) note(n Note) {
	n.Server = r.server
	now := time.Now()
	if now.Sub(r.notes.since) > time.Minute {
		if r.notes.lost > 0 {
			r.book.o.Note(Note{Server: r.server, What: "pin.unnoted", Count: r.notes.lost})
		}
		r.notes = tally{since: now}
	}
	if r.notes.count++; r.notes.count > notesAMinute {
		r.notes.lost++
		return
	}
	r.book.o.Note(n)
}

// absent returns the word that is settled for a kind that a server did not declare when it
// was first met in an era: what it offers there later is new.
func absent(era string, k Kind) string { return "no " + kindWords[k].settled + " in " + era }

// gather is how long first uses wait to be noted together.
const gather = time.Second

// used notes a first use. A new server is asked for several lists at once: they make one
// note, after the act that caused them. The caller holds mu.
func (r *record) used(what string, n int) {
	if len(r.fresh) == 0 {
		time.AfterFunc(gather, r.tellFresh)
	}
	r.fresh = append(r.fresh, what)
	r.freshN += int64(n)
}

func (r *record) tellFresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fresh) == 0 {
		return
	}
	r.note(Note{What: "pin.approved", Rule: ruleFirst, Reason: "first use of " + strings.Join(r.fresh, ", "), Count: r.freshN})
	r.fresh, r.freshN = nil, 0
}

// eras are the eras in which a server can be met.
var eras = []string{"legacy", "modern"}

// basis returns the item that an item is compared with: itself, or the instructions of the
// other era if none were approved in this one. A server that appears in another era is still
// the approved one.
func (r *record) basis(item string) string {
	if _, ok := r.approved[item]; ok || !strings.HasPrefix(item, itemInstructions+":") {
		return item
	}
	for _, era := range eras {
		if _, ok := r.approved[instructionsOf(era)]; ok {
			return instructionsOf(era)
		}
	}
	return item
}

// basisOf is basis for callers that do not hold mu.
func (r *record) basisOf(item string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.basis(item)
}

// metBefore reports whether a server was met in another era before this one.
func (r *record) metBefore(era string) bool {
	return slices.ContainsFunc(eras, func(other string) bool {
		return other != era && (r.settled[other] || r.settled[instructionsOf(other)])
	})
}

// later returns the word that is settled for an era in which a server appeared after it was
// known from another one: nothing that it offers there is a first use.
func later(era string) string { return "later in " + era }

// late reports whether a server now declares a kind of definition that it did not have when
// it was first met, in any era. A kind that is never declared may have existed from the
// start, because some servers do not declare it. The caller holds mu.
func (r *record) late(era string, k Kind) bool {
	return r.declared[absent(era, k)] && slices.ContainsFunc(eras, func(e string) bool { return r.settled[absent(e, k)] })
}

// declares notes what a server declares, and returns the words for the kinds that it does not
// declare. The caller holds mu.
func (r *record) declares(era string, capabilities []byte) (words []string) {
	for k := range KindCount {
		has := rawjson.GetPath(capabilities, kindWords[k].capability...) != nil
		r.declared[absent(era, k)] = has
		if !has {
			words = append(words, absent(era, k))
		}
	}
	return words
}

// meet is the first use of an era: what the server does not have then is new when it appears.
// If the server is known from another era, nothing is approved. The caller holds mu.
func (r *record) meet(era string, words []string, instructions []byte) {
	item := instructionsOf(era)
	items := make(map[string][]byte)
	if r.metBefore(era) {
		words = append(words, later(era))
	} else if instructions != nil && !r.settled[item] {
		items[item] = rawjson.Canonical(instructions)
	}
	if err := r.approve(items, append(words, era, item)...); err != nil {
		r.book.o.Log.Error("a first use cannot be stored", "server", r.server, "err", err)
		return
	}
	if len(items) > 0 {
		r.used(item, 1)
	}
}

func instructionsOf(era string) string { return itemInstructions + ":" + era }

// recovered is settled after a damaged manifest was replaced: nothing is a first use any
// more.
const recovered = "recovered"
