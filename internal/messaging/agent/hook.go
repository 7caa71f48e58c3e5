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

// HookCounts is what `doorward agent hook` may print: counts alone. Tell: the
// newest message is unread and has not been told of before.
type HookCounts struct {
	Known  bool  `json:"known"` // the caller, or its parent, is a peer
	Unread int   `json:"unread"`
	Newest int64 `json:"newest"`
	Tell   bool  `json:"tell"`
}

// Hook counts the mail of the peer that the hook's caller belongs to, by the
// digest of its session or by its process and the ancestors of that: observed
// facts may inform. It is no operator's command, but a look at a mailbox: only
// for callers on this machine who may read theirs, and recorded once. Errors:
// *gate.Refusal, *mail.Error.
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
	p, out, err := s.hookCounts(ctx, on)
	if err != nil {
		return HookCounts{}, a.fail(err)
	}
	if err := a.done(append(peerFields(p), field("known", fmt.Sprint(out.Known)), number("unread", int64(out.Unread)))...); err != nil {
		return HookCounts{}, err
	}
	if on != nil {
		out.Tell = s.sessions.hookTells(on, out.Newest)
	}
	return out, nil
}

// hookCounts are the counts of a session's mailbox; nothing without a peer.
func (s *Server) hookCounts(ctx context.Context, on *session) (p mail.Peer, out HookCounts, err error) {
	if on == nil {
		return p, out, nil
	}
	p, n, waiting, err := s.o.Book.Look(ctx, s.sessions.ownerOf(on))
	switch {
	case noPeer(err):
		return mail.Peer{}, out, nil
	case err != nil:
		return p, out, err
	}
	s.sessions.bind(on, p)
	out = HookCounts{Known: true, Unread: len(waiting)}
	out.Newest, _ = newest(n, waiting)
	if out.Unread == pointersMost { // the book names no more than these
		out.Unread = max(out.Unread, n.Pending)
	}
	return p, out, nil
}

// pointersMost is how many unread messages mail.Book.Look names.
const pointersMost = 20

// hook is the session that a hook belongs to: its own, or that of the nearest
// process above it which is an agent of the same principal.
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

// below is the session of the nearest of the processes: of several of one
// process the newest, of those that live if there are any. The caller holds mu.
func (t *sessions) below(who *principal.Principal, processes []string) *session {
	owner := t.qualified(who)
	for _, p := range processes {
		var best *session
		for _, s := range t.byKey {
			if s.peer == "" || s.owner.Principal != owner || !slices.Contains(s.owner.Processes, p) {
				continue
			}
			if best == nil || s.lives() != best.lives() && s.lives() || s.lives() == best.lives() && s.made > best.made {
				best = s
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// hookTells notes that a session is woken by hooks, and reports, once for each
// newest message, that it is worth telling.
func (t *sessions) hookTells(s *session, newest int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.hooked = t.now()
	if newest <= s.hookTold {
		return false
	}
	s.hookTold = newest
	return true
}
