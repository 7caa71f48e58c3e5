package session

import "time"

// Check returns the session of a token, or an *Invalid. It reads memory only, and for a
// bound session asks the kernel about processes.
//
// On the Unix socket the session's subject must be the caller's principal, and a bound
// process must be the caller or above it. The binding is also checked over TCP on this
// machine, if the system can tell the process. Elsewhere the token is a bearer secret.
func (k *Keeper) Check(token string, c Caller) (*Session, error) {
	s, reason := k.check(token, c)
	if reason != "" {
		k.count.failed(reason)
		return nil, &Invalid{reason}
	}
	return s, nil
}

// check verifies the token before it looks up the session, so that a forged token costs
// no look-up.
func (k *Keeper) check(token string, c Caller) (*Session, string) {
	p, reason := k.read.read(k.ring.Load(), token)
	if reason != "" {
		return nil, reason
	}
	if p.Aud != k.tokens.aud {
		return nil, Binding
	}
	now := k.o.Now()
	if now.Before(time.Unix(p.Iat, 0).Add(-Tolerance)) || !now.Before(time.Unix(p.Exp, 0).Add(Tolerance)) {
		return nil, Expired
	}
	s, reason := k.known(p, now)
	if reason != "" {
		return nil, reason
	}
	own := c.Unix && len(c.Processes) > 0 && c.Processes[0] == s.Bind // the caller lives
	if s.Bind != "" && !own && k.o.Gone(s.Bind) {
		wake(k.poke) // so that Run ends the session at once
		return nil, Revoked
	}
	if c.Unix && c.Principal != s.Subject || s.Bind != "" && !c.within(s.Bind) {
		return nil, Binding
	}
	return s, ""
}

// known returns the session that a token belongs to.
func (k *Keeper) known(p payload, now time.Time) (*Session, string) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	g := k.grants[digestOf(p.SID)]
	switch {
	case g == nil:
		return nil, Revoked
	case !k.tokens.says(p, &g.of.Session, g):
		return nil, MAC
	case g.of.Reason == ReasonExpired:
		return nil, Expired
	case !g.of.Ended.IsZero():
		return nil, Revoked
	case !now.Before(g.until):
		return nil, Expired
	}
	return g.of.copy(), ""
}

// wake signals a loop without blocking.
func wake(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}
