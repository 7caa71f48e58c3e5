package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
)

// Acts that policy allows and the operator decides about.
// Invariant: an Approval lets exactly the act through that it was given for, once, under
// the policy of that moment.

// Held is the answer of Enter, and of Pass.Hold, to an act that is allowed and has to be
// approved first. Nothing is charged and nothing recorded.
type Held struct {
	Ask     policy.Ask
	Binding Binding
	Act     Act
}

func (h *Held) Error() string { return fmt.Sprintf("held by %s", h.Ask.Rule) }

// Binding is what an approval is bound to: the policy in force, and a digest of caller,
// session, action, object, definition, generation of the server and arguments. Equal acts have equal bindings.
type Binding struct {
	set    *policy.Set
	digest [sha256.Size]byte
}

// bind makes the binding of an act. Arguments count in the form that equal ones share.
func bind(set *policy.Set, a Act) Binding {
	h, args := sha256.New(), a.Args
	if a.Form != nil {
		args = a.Form(args)
	}
	for _, part := range [][]byte{[]byte(a.Who.Key()), []byte(a.Session), []byte(a.Action), []byte(a.Server), []byte(a.Name), []byte(a.Definition), binary.BigEndian.AppendUint64(nil, a.Generation), args} {
		h.Write(append(binary.BigEndian.AppendUint64(nil, uint64(len(part))), part...))
	}
	return Binding{set, [sha256.Size]byte(h.Sum(nil))}
}

// Approval lets the act of one binding through, once, until it expires.
type Approval struct {
	binding Binding
	until   time.Time
	ref     uint64 // the record of who approved it
	used    atomic.Bool
}

// Approve makes the approval of a binding. ref is the record that says who gave it.
func (b Binding) Approve(until time.Time, ref uint64) *Approval {
	return &Approval{binding: b, until: until, ref: ref}
}

// take uses the approval up, where it is one for b.
func (p *Approval) take(b Binding) bool {
	return p != nil && p.binding == b && time.Now().Before(p.until) && !p.used.Swap(true)
}

// spent is the approval that let an act through; nil where none was asked for.
func (p *Approval) spent(ask policy.Ask) *Approval {
	if ask.Rule == "" {
		return nil
	}
	return p
}

// Hold is for the server of an act that turned out to be another one, which policy holds:
// on the object name, with these arguments. A *Held means that no approval of it was
// given, and that it must not happen.
func (p Pass) Hold(ask policy.Ask, name string, args []byte) (Pass, error) {
	a := p.act
	a.Name, a.Args = name, args
	if b := bind(p.gate.policy.Load(), a); !p.Given.take(b) {
		return p, &Held{Ask: ask, Binding: b, Act: a}
	}
	p.act.Approval = p.Given
	return p, nil
}
