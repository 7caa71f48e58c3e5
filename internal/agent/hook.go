package agent

import (
	"context"
	"slices"

	"github.com/doorward/doorward/internal/principal"
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
// facts may inform. It is no operator's command, and is not recorded.
func (s *Server) Hook(ctx context.Context, who *principal.Principal, sessionDigest string, processes []string) (HookCounts, error) {
	on := s.sessions.hook(who, sessionDigest, processes)
	if on == nil {
		return HookCounts{}, nil
	}
	p, n, waiting, err := s.o.Book.Look(ctx, s.sessions.ownerOf(on))
	if noPeer(err) {
		return HookCounts{}, nil
	}
	if err != nil {
		return HookCounts{}, err
	}
	s.sessions.found(on, p.ID)
	out := HookCounts{Known: true, Unread: len(waiting)}
	out.Newest, _ = newest(n, waiting)
	if out.Unread == pointersMost { // the book names no more than these
		out.Unread = max(out.Unread, n.Pending)
	}
	out.Tell = s.sessions.hookTells(on, out.Newest)
	return out, nil
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
	found = t.leader(found)
	found.hooked = t.now()
	return found
}

// below is the session of the nearest of the processes. The caller holds mu.
func (t *sessions) below(who *principal.Principal, processes []string) *session {
	owner := t.qualified(who)
	for _, p := range processes {
		for _, s := range t.byKey {
			if s.peer != "" && s.owner.Principal == owner && slices.Contains(s.owner.Processes, p) {
				return s
			}
		}
	}
	return nil
}

// hookTells reports, once for each newest message, that it is worth telling.
func (t *sessions) hookTells(s *session, newest int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if newest <= s.hookTold {
		return false
	}
	s.hookTold = newest
	return true
}
