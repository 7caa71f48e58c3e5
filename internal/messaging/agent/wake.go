package agent

import "time"

// The ways in which a peer is woken, in the order in which they own a message.
const (
	wakeWait      = "wait"
	wakeListen    = "listen"
	wakeSubscribe = "subscribe"
	wakeHook      = "hook"
	wakeNone      = "none"
)

// hookTime is how long one question of a hook stands for more to come.
const hookTime = 24 * time.Hour

// wake is how a peer will be told of mail, as far as this node knows. The stream
// of a session without signs of life wakes no client.
func (t *sessions) wake(peer string, live bool) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.byID[peer]
	switch {
	case s == nil:
		return wakeNone
	case live && s.calls > 0:
		return wakeWait
	case live && s.listens > 0:
		return wakeListen
	case live && s.subs > 0:
		return wakeSubscribe
	case s.hooked > 0 && t.now()-s.hooked < int64(hookTime):
		return wakeHook
	}
	return wakeNone
}
