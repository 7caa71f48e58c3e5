package agent

import "time"

// The ways in which a peer is woken, in their order of precedence for a message.
const (
	wakeWait      = "wait"
	wakeListen    = "listen"
	wakeSubscribe = "subscribe"
	wakeHook      = "hook"
	wakeNone      = "none"
)

// hookTime is how long after a call of a hook another one is expected.
const hookTime = 24 * time.Hour

// wokenBy returns how a live session will be told of mail. The caller holds mu.
func (t *sessions) wokenBy(s *session) string {
	listens, subs := s.streams()
	switch {
	case s.takes > 0:
		return wakeWait
	case listens > 0:
		return wakeListen
	case subs > 0:
		return wakeSubscribe
	case s.hooked > 0 && t.now()-s.hooked < int64(hookTime):
		return wakeHook
	}
	return wakeNone
}
