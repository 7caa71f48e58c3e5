package pin

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/lookalike"
)

// Verdict is the decision of a guard about one list of one connection. It is immutable.
type Verdict struct {
	record *record
	epoch  uint64
	kind   Kind
	sum    digest
	open   map[string]opened // by the name that clients know
	held   map[string]Reason // by that name and by the server's own
	asIs   bool              // the list may be forwarded unchanged

	withheld []*Withheld
}

// opened is an item that may be used.
type opened struct {
	name   string // the server's own
	digest digest
}

// Current reports whether the verdict still holds, as far as approvals go.
func (v *Verdict) Current() bool { return v.epoch == v.record.epoch.Load() }

// Name returns the server's own name for a name that clients know, or why it may not be used.
func (v *Verdict) Name(name string) (own string, why Reason) {
	if o, ok := v.open[name]; ok {
		return o.name, ""
	}
	if why := v.held[name]; why != "" {
		return "", why
	}
	return "", Unlisted
}

// maxItems bounds the entries of one list that are examined.
const maxItems = 20_000

// Asker describes the client that a list was asked for: some servers offer more to a client
// that declares more.
type Asker struct {
	Era    string // legacy or modern
	Client string // the capabilities that the client declared, in a fixed order; "" for none
}

// settled returns the word that a first use of a kind settles: the kind, for clients that
// declare the same.
func (a Asker) settled(k Kind) string {
	if a.Client == "" {
		return kindWords[k].settled
	}
	return kindWords[k].settled + " for " + a.Client
}

// Judge compares a whole list with what was approved. At its first use under auto it approves
// the list. An empty list does not count as a use.
func (g *Guard) Judge(a Asker, k Kind, entries []byte) *Verdict { return g.judge(nil, a, k, entries) }

func (g *Guard) judge(view *View, a Asker, k Kind, entries []byte) *Verdict {
	r := g.record
	sum := digest(sha256.Sum256(entries))
	r.mu.Lock()
	defer r.mu.Unlock()
	word := a.settled(k)
	if v := r.last[word]; v != nil && v.sum == sum && v.Current() {
		r.found(view, k.key(""), v.withheld)
		return v
	}
	list := survey(k, entries)
	g.refuse(k, list)
	r.noteCleaned(k, list)
	first := r.nothingUsed(a, k)
	if g.isFirstUse(a, k, list) {
		g.firstUse(k, word, list)
	}
	v := g.verdict(k, list, first)
	v.sum = sum
	r.found(view, k.key(""), v.withheld)
	r.last[word] = v
	return v
}

func (r *record) noteCleaned(k Kind, list []seen) {
	n := 0
	for _, s := range list {
		n += s.cleaned
	}
	if n > 0 {
		r.note(Note{Item: kindWords[k].settled, What: "pin.cleaned", Count: int64(n)})
	}
}

// nothingUsed reports whether no list of a kind has been used yet and the kind did not appear
// after the first greeting. The caller holds mu.
func (r *record) nothingUsed(a Asker, k Kind) bool {
	return !r.settled[kindWords[k].settled] && !r.settled[recovered] && !r.late(a.Era, k) && r.count(k) == 0
}

// isFirstUse decides whether a list approves itself. A client that declares other
// capabilities than earlier ones may add to what was approved. It may not if an entry that
// was approved has changed, which points to an update, nor in an era that came later, nor
// once the server is started with other arguments. The caller holds mu.
func (g *Guard) isFirstUse(a Asker, k Kind, list []seen) bool {
	r := g.record
	if g.manual || r.fault != nil || len(list) == 0 || r.settled[recovered] || r.settled[a.settled(k)] || r.late(a.Era, k) {
		return false
	}
	if (r.settled[later(a.Era)] || r.settled[edited]) && r.count(k) > 0 {
		return false
	}
	for _, s := range list {
		if d, ok := r.approved[k.key(s.name)]; ok && d != s.digest {
			return false
		}
	}
	return true
}

// NoList returns the verdict about a server that does not answer a list: what was approved
// may be used.
func (g *Guard) NoList(k Kind) *Verdict {
	r := g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	v := &Verdict{record: r, epoch: r.epoch.Load(), kind: k, open: make(map[string]opened)}
	for item, d := range r.approved {
		if name, ok := strings.CutPrefix(item, k.key("")); ok && r.open[item] == nil {
			if shown, n := plaintext.Clean(name); n == 0 {
				v.open[shown] = opened{name, d}
			}
		}
	}
	return v
}

// approveAgain is how long the verdicts hold after a first use that could not be written.
const approveAgain = time.Second

// firstUse approves a list. If that cannot be written, the verdicts soon no longer hold, so
// that the next use of the list tries again. The caller holds mu.
func (g *Guard) firstUse(k Kind, word string, list []seen) {
	r := g.record
	items := make(map[string][]byte)
	for _, s := range list {
		if s.refusal == "" {
			items[k.key(s.name)] = canonical(k, s.raw)
		}
	}
	if err := r.approve(items, word); err != nil {
		r.book.o.Log.Error("a first use cannot be stored, and is withheld", "server", r.server, "list", kindWords[k].settled, "err", err)
		time.AfterFunc(approveAgain, func() { r.epoch.Add(1) })
		return
	}
	r.used(word, len(items))
}

// verdict decides about every entry. first: nothing of the kind has been used before. The
// caller holds mu.
func (g *Guard) verdict(k Kind, list []seen, first bool) *Verdict {
	r := g.record
	v := &Verdict{record: r, kind: k, asIs: true, open: make(map[string]opened, len(list)), held: make(map[string]Reason)}
	offered := make(map[string]bool, len(list))
	for _, s := range list {
		item := k.key(s.name)
		offered[item] = true
		why := r.reason(item, s.digest, first)
		if s.refusal != "" {
			why = Refused
		}
		if why == "" {
			v.open[s.shown] = opened{s.name, s.digest}
			if s.name != s.shown {
				v.held[s.name] = Refused // only one spelling may be used
			}
			v.asIs = v.asIs && s.cleaned == 0
			continue
		}
		v.asIs = false
		w := &Withheld{Item: item, Reason: why, Detail: s.refusal, Digest: s.digest.String()}
		if why != Refused {
			w.After = bytes.Clone(canonical(k, s.raw))
		}
		v.withheld = append(v.withheld, w)
		v.held[s.shown], v.held[s.name] = why, why
	}
	for name := range v.open { // an entry of the same name may have been refused
		delete(v.held, name)
	}
	if len(list) > 0 {
		r.left(k, offered)
	}
	v.epoch = r.epoch.Load()
	return v
}

func (r *record) count(k Kind) (n int) {
	for item := range r.approved {
		if strings.HasPrefix(item, k.key("")) {
			n++
		}
	}
	return n
}

// Show returns the part of entries that clients may see; entries is the list that was judged
// or a page of it. changed is false if they may see all of it unchanged.
func (v *Verdict) Show(entries []byte, whole bool) (shown []byte, changed bool) {
	if whole && v.asIs {
		return entries, false
	}
	out := []byte{'['}
	done := make(map[string]bool)
	for raw := range rawjson.Elements(entries) {
		s := look(v.kind, raw)
		o, ok := v.open[s.shown]
		if !ok || o.name != s.name || o.digest != s.digest || done[s.shown] {
			changed = true
			continue
		}
		changed = changed || s.cleaned > 0
		done[s.shown] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, s.clean...)
	}
	if !changed {
		return entries, false
	}
	return append(out, ']'), true
}

// refuse refuses entries that cannot be offered together: names that are taken or look alike,
// and names in another server's prefix. Of entries that look alike an approved one is kept.
// The caller holds mu.
func (g *Guard) refuse(k Kind, list []seen) {
	servers := g.record.book.names()
	groups := make(map[string][]int)
	for i := range list {
		s := &list[i]
		if s.refusal != "" {
			continue
		}
		if i >= maxItems {
			s.refusal = "the list is too long"
			continue
		}
		if other, yes := trespasses(s.shown, g.record.server, servers); yes {
			s.refusal = "its name lies in the prefix of the server " + other
			continue
		}
		for _, form := range forms(k, s.shown) {
			groups[form] = append(groups[form], i)
		}
	}
	for _, group := range groups {
		if len(group) > 1 {
			g.spareOne(k, list, group)
		}
	}
}

// forms returns the forms of a name that must be unique in a list. Addresses may differ only
// in case, so they are compared unchanged.
func forms(k Kind, shown string) []string {
	if k.isAddress() {
		return []string{shown}
	}
	l := lookalike.Forms(shown)
	return []string{"0" + l[0], "1" + l[1]}
}

// spareOne refuses all entries of a group except the approved one, or except the first if all
// are equal.
func (g *Guard) spareOne(k Kind, list []seen, group []int) {
	spared := -1
	same := true
	for _, i := range group {
		s := &list[i]
		same = same && s.name == list[group[0]].name && s.digest == list[group[0]].digest
		if d, ok := g.record.approved[k.key(s.name)]; ok && d == s.digest && spared < 0 {
			spared = i
		}
	}
	if spared < 0 && same {
		spared = group[0]
	}
	for _, i := range group {
		if i == spared {
			continue
		}
		list[i].refusal = "its name is taken, or looks like another of the list"
	}
}
