package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// HookCounts is what `doorward agent hook` may print: numbers, no text. Tell: a message is
// unread that no hook has reported since it arrived, or since it was given and came back.
type HookCounts struct {
	Known  bool  `json:"known"` // the caller, or its parent, is a peer
	Unread int   `json:"unread"`
	Newest int64 `json:"newest"`
	Tell   bool  `json:"tell"`
}

// Hook counts the mail of the peer that the hook's caller belongs to. The peer is found
// by the digest of the session, or by the caller's process and its ancestors: observed
// facts suffice, because they only inform. It is not a command of the operator but a read
// of a mailbox: only callers on this machine that may read their own mailbox are
// admitted, and the read is recorded once. Errors: *gate.Refusal, *mail.Error.
func (s *Server) Hook(ctx context.Context, who *principal.Principal, sessionDigest string, processes []string) (HookCounts, error) {
	q := gate.Act{Who: who, Session: sessionDigest, Action: actionRead, Server: ServerName, Name: "hook", Source: source}
	if !who.Local() {
		return HookCounts{}, s.o.Gate.Refuse(q, policy.RuleNoMessaging, gate.CodeDenied, 0)
	}
	pass, err := s.o.Gate.Enter(q.Deferred())
	if err != nil {
		return HookCounts{}, err
	}
	a := &act{s: s, pass: pass}
	on := s.sessions.hook(who, sessionDigest, processes)
	at := givenTo(s.sessions, on)
	p, oldest, out, err := s.hookCounts(ctx, on)
	if err != nil {
		return HookCounts{}, a.fail(err)
	}
	if err := a.done(append(peerFields(p), field("known", fmt.Sprint(out.Known)), number("unread", int64(out.Unread)))...); err != nil {
		return HookCounts{}, err
	}
	if on != nil && ctx.Err() == nil { // else its client has left, and the next hook tells
		out.Tell = s.sessions.hookTells(on, p.ID, oldest, out.Newest, at)
	}
	return out, nil
}

// hookCounts returns the counts of a session's mailbox, and the number of the oldest of the
// newest unread messages; zero without a peer.
func (s *Server) hookCounts(ctx context.Context, on *session) (p mail.Peer, oldest int64, out HookCounts, err error) {
	if on == nil {
		return p, 0, out, nil
	}
	p, n, waiting, err := s.o.Book.Look(ctx, s.sessions.ownerOf(on))
	switch {
	case noPeer(err):
		return mail.Peer{}, 0, out, nil
	case err != nil:
		return p, 0, out, err
	}
	s.bind(on, p)
	out = HookCounts{Known: true, Unread: len(waiting)}
	out.Newest, _ = newest(n, waiting)
	if out.Unread == pointersMost { // the book returns at most this many, so there may be more
		out.Unread = max(out.Unread, n.Pending)
	}
	if len(waiting) > 0 {
		oldest = waiting[len(waiting)-1].Seq // the newest one is the first
	}
	return p, oldest, out, nil
}

// pointersMost is the number of unread messages that mail.Book.Look returns at most.
const pointersMost = 20

// hook returns the session that a hook belongs to: its own, or that of the nearest
// ancestor process which is an agent of the same principal.
func (t *sessions) hook(who *principal.Principal, digest string, processes []string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.byKey[who.Name()+"\x00"+SessionOf(who, digest)]
	if found == nil || found.peer == "" && found.joined == nil {
		found = t.below(who, processes)
	}
	if found == nil {
		return nil
	}
	return t.leader(found)
}

// below returns the session of the first of the processes that has one. A started agent
// has one peer, and its process numbers may be those of a namespace of its own, so all its
// processes are below its sessions. The caller holds mu.
func (t *sessions) below(who *principal.Principal, processes []string) *session {
	owner := t.qualified(who)
	if kind, _, _ := principal.Parse(who.Name()); kind == principal.KindSpawn {
		return bestOf(t.byKey, func(s *session) bool { return s.owner.Principal == owner })
	}
	for _, p := range processes {
		best := bestOf(t.byKey, func(s *session) bool { return s.owner.Principal == owner && slices.Contains(s.owner.Processes, p) })
		if best != nil {
			return best
		}
	}
	return nil
}

// bestOf returns one of the sessions with a peer that which selects: the live ones come
// before the others, and then the newest. nil: none.
func bestOf(all map[string]*session, which func(*session) bool) *session {
	var best *session
	for _, s := range all {
		if s.peer == "" || !which(s) {
			continue
		}
		if best == nil || s.lives() != best.lives() && s.lives() || s.lives() == best.lives() && s.made > best.made {
			best = s
		}
	}
	return best
}

// hookTells notes that hooks wake the session. It reports whether one of the unread messages
// of its peer, from oldest to newest, has not been told by a hook since it became unread. at is
// what was given before they were read.
func (t *sessions) hookTells(s *session, peer string, oldest, newest int64, at given) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.hooked = t.now()
	returned := oldest > 0 && oldest <= at.upTo
	if s.peer != peer || newest <= s.hookTold && !returned {
		return false // of another peer: the next hook tells
	}
	s.hookTold = max(s.hookTold, newest)
	if returned && s.gives == at.gives {
		s.gaveUpTo = 0 // what was given is reported until it is given again
	}
	return true
}
