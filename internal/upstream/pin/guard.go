package pin

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// Guard decides for one server what may be offered and used. It is safe for concurrent use.
type Guard struct {
	record  *record
	manual  bool
	process *Process
}

// View is a guard for one connection of its server. A definition that is withheld
// on one connection is withheld for the server: an unchanged instance does not
// hide a changed one.
type View struct{ *Guard }

// Start decides whether the server's process may be started. Its error wraps ErrWithheld, or
// says why the program could not be read.
func (g *Guard) Start() error {
	if g.process == nil {
		return nil
	}
	def, err := g.process.definition(&g.record.book.files)
	if err != nil {
		return err
	}
	r, current := g.record, g.record.book.guard(g.record.server) == g
	r.mu.Lock()
	defer r.mu.Unlock()
	if current {
		g.follow(def)
	}
	if why := r.single(nil, g.manual, itemCommand, itemCommand, def); why != "" {
		return &Held{Item: itemCommand, Reason: why}
	}
	return nil
}

// Epoch returns a number that changes when earlier verdicts may no longer hold.
func (g *Guard) Epoch() uint64 { return g.record.epoch.Load() }

// Held is the error for an item that is withheld.
type Held struct {
	Item   string // empty where the caller of the guard names it
	Reason Reason
}

func (h *Held) Error() string {
	if h.Item == "" {
		return fmt.Sprintf("%s (%s)", ErrWithheld, h.Reason)
	}
	return fmt.Sprintf("%s: %s (%s)", h.Item, ErrWithheld, h.Reason)
}

func (h *Held) Unwrap() error { return ErrWithheld }

// Meet handles a server's greeting when a connection opens. The first greeting is a first
// use; the first one in another era only as far as nothing differs.
func (g *Guard) Meet(era string, capabilities, instructions []byte) {
	g.meet(nil, era, capabilities, instructions)
}

func (g *Guard) meet(v *View, era string, capabilities, instructions []byte) {
	r := g.record
	r.mu.Lock()
	words := r.declares(era, capabilities)
	if !g.manual && r.fault == nil && !r.settled[era] && !r.settled[recovered] {
		r.meet(era, words, instructions)
	}
	r.mu.Unlock()
	g.instructions(v, era, instructions)
}

// Instructions returns the part of a server's instructions that clients may see, raw; nil:
// nothing.
func (g *Guard) Instructions(era string, text []byte) []byte { return g.instructions(nil, era, text) }

func (g *Guard) instructions(v *View, era string, text []byte) []byte {
	r, item := g.record, instructionsOf(era)
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == nil {
		r.found(v, item, nil)
		return nil
	}
	if why := r.single(v, g.manual, item, item, rawjson.Canonical(text)); why != "" {
		return nil
	}
	shown, n := CleanText(text, maxGreeting)
	if n > 0 {
		r.note(Note{Item: item, What: "pin.cleaned", Count: int64(n)})
	}
	return shown
}

// CleanText cleans the strings of raw and cuts those that are longer than limit; 0: no limit.
func CleanText(raw []byte, limit int) (out []byte, n int) {
	if plainJSON(raw) && (limit == 0 || len(raw) <= limit) {
		return raw, 0
	}
	out = rawjson.MapStrings(raw, func(s rawjson.String) ([]byte, bool) {
		if s.IsKey {
			return nil, false
		}
		text, taken := plaintext.Clean(string(s.Text))
		if limit > 0 && len(text) > limit {
			text = cut(text, limit)
			taken++
		}
		n += taken
		return []byte(text), taken > 0
	})
	return out, n
}

// Shut returns why an item may not be used, for items that are used without being listed: the
// addresses of resources and templates. An address that a server may take for a withheld one
// is withheld too, unless it was approved itself.
func (g *Guard) Shut(k Kind, name string) Reason {
	if why := g.shutAll(k); why != "" {
		return why
	}
	why := resembling(k, name, g.record.public.Load().withheld, func(r Reason) Reason { return r })
	if why != "" && g.record.opens(k.key(name)) {
		return ""
	}
	return why
}

// shutAll returns why no item of a kind may be used without being listed.
func (g *Guard) shutAll(k Kind) Reason {
	p := g.record.public.Load()
	switch {
	case p.fault:
		return Damaged
	case g.manual && !p.settled[k]:
		return Unapproved
	}
	return ""
}

// Unlisted returns why a name that a server does not list may not be used. Under auto such a
// name is allowed, unless it is withheld on another connection, looks like one that is
// withheld or approved, or has invisible characters.
func (g *Guard) Unlisted(k Kind, name string) Reason {
	if why := g.Shut(k, name); why != "" {
		return why
	}
	if g.manual || g.record.respells(k, name) {
		return Unlisted
	}
	if _, n := plaintext.Clean(name); n > 0 {
		return Refused
	}
	return ""
}

// Withheld lists the withheld items of a server, with what was approved before.
func (b *Book) Withheld(server string) []Withheld {
	r := b.known(server)
	if r == nil {
		return nil
	}
	b.lookAtCommand(server)
	out := r.withheld()
	if len(out) == 0 {
		return out
	}
	m := r.manifest()
	for i := range out {
		if def := m.items[r.basisOf(out[i].Item)]; def != nil {
			out[i].Before = def
		}
		if g := b.guard(server); out[i].Item == itemCommand && g != nil && g.process != nil {
			out[i].Was, out[i].Is = m.shown, g.process.Shown
		}
	}
	return out
}

// Items returns the names of the withheld items of a server.
func (b *Book) Items(server string) []string {
	r := b.known(server)
	if r == nil {
		return nil
	}
	b.lookAtCommand(server)
	var out []string
	for _, w := range r.withheld() {
		out = append(out, w.Item)
	}
	return out
}

// lookAtCommand checks whether the program has changed since its last start, unless the check
// itself would approve it as a first use.
func (b *Book) lookAtCommand(server string) {
	g := b.guard(server)
	if g == nil {
		return
	}
	g.record.mu.Lock()
	look := g.manual || g.record.settled[itemCommand] || g.record.fault != nil
	g.record.mu.Unlock()
	if look {
		if err := g.Start(); err != nil && !errors.Is(err, ErrWithheld) {
			b.o.Log.Debug("a server's program cannot be read", "server", server, "err", err)
		}
	}
}

// ErrStale says that an item was not approved because it is not as it was shown: it has
// changed, or is no longer withheld.
var ErrStale = errors.New("it is not what is withheld now")

// ErrUnknown says that the server does not exist.
var ErrUnknown = errors.New("no such server")

// Approve approves items as they were shown. It approves all of them or, with an error, none.
func (b *Book) Approve(server string, approvals []Approval) error {
	r := b.known(server)
	if r == nil {
		return ErrUnknown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	items := make(map[string][]byte, len(approvals))
	words := make([]string, 0, len(approvals))
	for _, a := range approvals {
		w := r.open[a.Item]
		if w == nil || w.Digest != a.Digest || w.Reason == Refused || w.After == nil {
			return fmt.Errorf("%s: %w", a.Item, ErrStale)
		}
		items[a.Item] = bytes.Clone(w.After)
		words = append(words, settledBy(a.Item))
	}
	r.edit = Edit{}
	if r.fault != nil { // after that nothing may count as a first use
		words = append(words, recovered)
	}
	if err := r.approve(items, words...); err != nil {
		return err
	}
	r.reconsider()
	r.publish()
	r.epoch.Add(1)
	return nil
}

// settledBy returns the word that an approval of an item settles.
func settledBy(item string) string {
	word, _, _ := strings.Cut(item, ":")
	for _, k := range kindWords {
		if k.item == word {
			return k.settled
		}
	}
	return item
}

// single decides about an item that is not on a list, on connection v. At its first use under
// auto it approves the item. The caller holds mu.
func (r *record) single(v *View, manual bool, item, settled string, def []byte) Reason {
	d := digestOf(def)
	why := r.reason(item, d, !r.settled[settled] && !r.settled[recovered])
	if why == Unapproved && !manual {
		if err := r.approve(map[string][]byte{item: def}, settled); err != nil {
			r.book.o.Log.Error("a first use cannot be stored, and is withheld", "server", r.server, "item", item, "err", err)
		} else {
			why = ""
			r.used(settled, 1)
		}
	}
	if why == "" {
		r.found(v, item, nil)
	} else {
		r.found(v, item, []*Withheld{{Item: item, Reason: why, Digest: d.String(), After: bytes.Clone(def)}})
	}
	return why
}
