package approval

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The periods for which an approval can hold.
const (
	Once    = "once"
	Session = "session"
	Hour    = "1h"
	Always  = "always"
)

const unknownLife = time.Duration(-1)

// lifeOf returns how long an approval holds; 0: without end.
func lifeOf(word string) time.Duration {
	switch word {
	case Hour:
		return time.Hour
	case Once, Session, Always:
		return 0
	}
	return unknownLife
}

func orOnce(word string) string { return cmp.Or(word, Once) }

// Grant approves every call of a tool by one principal, until it expires, is revoked, or
// the tool's definition changes.
type Grant struct {
	ID         string    `json:"id"`
	Action     string    `json:"action"`
	Server     string    `json:"server"`
	Tool       string    `json:"tool"`
	Definition string    `json:"definition"`
	Principal  string    `json:"principal"`
	Session    string    `json:"session,omitempty"` // session or process that it is bound to; empty: none
	For        string    `json:"for"`
	Granted    time.Time `json:"granted"`
	Expires    time.Time `json:"expires,omitzero"`
	Ref        uint64    `json:"ref"` // of approval.granted

	ends time.Duration // of Options.Elapsed; without Expires it is unused
}

// over reports whether a grant has expired: by the wall clock, or because as much time has passed
// while that clock was set back.
func (q *Queue) over(g Grant) bool {
	return !g.Expires.IsZero() && (q.o.Now().After(g.Expires) || q.o.Elapsed() > g.ends)
}

// resume starts the time of saved grants. A grant whose time is after now has no time left: the
// clock was set back between the two runs of the daemon, and how far is not known.
func (q *Queue) resume(saved []Grant) []Grant {
	saved, now, elapsed := slices.Clone(saved), q.o.Now(), q.o.Elapsed()
	for i, g := range saved {
		saved[i].ends = elapsed + g.Expires.Sub(now)
		if now.Before(g.Granted) {
			saved[i].ends = -1
		}
	}
	return saved
}

func (g Grant) covers(c Call) bool {
	return g.Action == c.Act.Action && g.Server == c.Act.Server && g.Tool == c.Act.Name && g.Principal == c.Act.Who.Name() &&
		(g.Session == "" || g.Session == c.Session)
}

// grant makes a grant of an approved question. The caller holds mu.
func (q *Queue) grant(at *question, life string, ref uint64) error {
	a := at.call.Act
	g := Grant{ID: strings.ToLower(rand.Text()[:nameLength]), Action: a.Action, Server: a.Server, Tool: a.Name, Definition: a.Definition,
		Principal: a.Who.Name(), For: life, Granted: q.o.Now(), Ref: ref}
	if life == Session {
		g.Session = at.call.Session
	}
	if d := lifeOf(life); d > 0 {
		g.Expires, g.ends = g.Granted.Add(d), q.o.Elapsed()+d
	}
	return q.keep(append(slices.Clone(q.grants), g))
}

// keep replaces the grants after it has saved them. Grants for a session are not saved: they
// end with the process.
func (q *Queue) keep(all []Grant) error {
	if err := q.o.Save(slices.DeleteFunc(slices.Clone(all), func(g Grant) bool { return g.Session != "" })); err != nil {
		return err
	}
	q.grants = all
	return nil
}

// granted returns the approval that a grant gives a call. It ends a grant for another
// definition of the tool, and an expired one. The caller holds mu.
func (q *Queue) granted(c Call) (Answer, bool, error) {
	for i, g := range q.grants {
		if !g.covers(c) {
			continue
		}
		why := ""
		switch {
		case q.over(g):
			why = "expired"
		case g.Definition != c.Act.Definition:
			why = "the definition changed"
		default:
			return Answer{Approval: c.Held.Binding.Approve(q.o.Now().Add(time.Minute), g.Ref), Ref: g.Ref}, true, nil
		}
		if err := q.end(i, nil, why); err != nil {
			return Answer{}, false, err
		}
		return q.granted(c)
	}
	return Answer{}, false, nil
}

// end removes grant i and records why. The caller holds mu.
func (q *Queue) end(i int, by *principal.Principal, why string) error {
	g := q.grants[i]
	r := audit.Record{Kind: audit.Event, Source: "approval", Who: by, Action: "approval.revoked", Resource: g.Server + "/" + g.Tool, Reason: why, Ref: g.Ref,
		Detail: []audit.Field{{Name: "grant", Value: g.ID}}}
	if _, err := q.o.Record(&r); err != nil {
		return err
	}
	return q.keep(slices.Delete(slices.Clone(q.grants), i, i+1))
}

// Grants returns the grants in force, the oldest first.
func (q *Queue) Grants() []Grant {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(q.grants), q.over)
}

// Revoke ends a grant in the name of by. The error is ErrSettled if the grant does not exist.
func (q *Queue) Revoke(by *principal.Principal, id string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.grants, func(g Grant) bool { return g.ID == id })
	if i < 0 {
		return ErrSettled
	}
	return q.end(i, by, "by the operator")
}

// mostUses bounds the entries of Queue.uses.
const mostUses = 4096

// notes says what is unusual about a call, as far as this run of the daemon knows.
func (q *Queue) notes(c Call) []string {
	tool := toolOf(c)
	switch {
	case !q.uses[tool]:
		return []string{"first approval of this tool since the daemon started"}
	case !q.uses[tool+shapeOf(c.Args)]:
		return []string{"arguments of a shape that was not approved before"}
	}
	return []string{}
}

// met notes an approved call.
func (q *Queue) met(c Call) {
	if len(q.uses) < mostUses {
		q.uses[toolOf(c)], q.uses[toolOf(c)+shapeOf(c.Args)] = true, true
	}
}

func toolOf(c Call) string {
	return strconv.Quote(c.Act.Who.Name()) + " " + c.Act.Action + " " + c.Act.Server + "/" + c.Act.Name + " "
}

// shapeOf returns the names of the arguments as one text.
func shapeOf(args []byte) string {
	var names []string
	for name := range rawjson.Members(args) {
		names = append(names, strconv.Quote(name))
	}
	return strings.Join(names, ",")
}
