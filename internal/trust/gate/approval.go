package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
)

// Approvals of held acts by the operator.
// Invariant: an Approval lets exactly the act through that it was given for, once, and
// only while the policy is the one under which the act was held.

// Held is the error of Enter, and of Pass.Hold, for an act that policy allows but that the
// operator must approve first. Enter has then charged and recorded nothing.
type Held struct {
	Ask     policy.Ask
	Binding Binding
	Act     Act
}

func (h *Held) Error() string { return fmt.Sprintf("held by %s", h.Ask.Rule) }

// Binding identifies the act that an approval is for: the policy in force, and a digest of
// caller, session, action, object, definition, generation of the server and arguments.
// Equal acts have equal bindings.
type Binding struct {
	set    *policy.Set
	digest [sha256.Size]byte
}

// bind makes the binding of an act. a.Form normalises the arguments, if it is set.
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
	ref     uint64 // seq of the record of the approval
	used    atomic.Bool
}

// Approve makes the approval of a binding. ref is the seq of the record of the approval.
func (b Binding) Approve(until time.Time, ref uint64) *Approval {
	return &Approval{binding: b, until: until, ref: ref}
}

// take uses the approval up and reports true, if it is for b, has not expired and was not
// used before.
func (p *Approval) take(b Binding) bool {
	return p != nil && p.binding == b && time.Now().Before(p.until) && !p.used.Swap(true)
}

// Hold is called by the server of an act that finds that the call amounts to another act,
// on the object name with the arguments args, which policy holds. It uses p.Given up if
// that approves the other act. Otherwise it returns a *Held, and the act must not happen.
func (p Pass) Hold(ask policy.Ask, name string, args []byte) (Pass, error) {
	a := p.act
	a.Name, a.Args = name, args
	if b := bind(p.gate.policy.Load(), a); !p.Given.take(b) {
		return p, &Held{Ask: ask, Binding: b, Act: a}
	}
	p.act.Approval = p.Given
	return p, nil
}
