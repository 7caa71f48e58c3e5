package client

import (
	"errors"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// The name that an agent has registered belongs to its session. When the daemon no longer
// knows that session, the shim opens another one and takes the name over for it. Otherwise
// nothing would tell a client that waits of new mail until it registers again.

const (
	// resumeWait is the longest time that a new session waits for its name. The request
	// that found the old session gone is sent afterwards, and may need the name.
	resumeWait = 2 * time.Second
	// resumeTries is the number of attempts, with pauseAfter between them.
	resumeTries = 6
)

// registered notes in which session the client has registered a name, or that it has given the
// name back.
func (l *legacySession) registered(s *shim, m *wire.Message, session string) {
	if m.Method != "tools/call" {
		return
	}
	switch tool, _ := rawjson.GetString(m.Params, "name"); {
	case tool == "":
	case tool == s.agentTool("register"):
		l.setHolder(session)
	case tool == s.agentTool("unregister"):
		l.setHolder("")
	}
}

// maybeRegistered is registered for a request whose answer was lost. Where no name was
// registered, there is none to take over.
func (l *legacySession) maybeRegistered(s *shim, m *wire.Message, session string) {
	l.mu.Lock()
	known := l.holder != ""
	l.mu.Unlock()
	if !known {
		l.registered(s, m, session)
	}
}

func (l *legacySession) setHolder(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = session
}

// resume takes over the name that was registered in an earlier session, if there is one. It
// returns after the first attempt, and resumeWait at the latest; later attempts follow in
// the background.
func (l *legacySession) resume(s *shim) {
	l.mu.Lock()
	former, now := l.holder, l.id
	l.mu.Unlock()
	if former == "" || former == now {
		return
	}
	tried := make(chan struct{}, resumeTries)
	go func() {
		for failed := 0; failed < resumeTries && l.takeName(s, former, now); failed++ {
			tried <- struct{}{}
			s.rest(s.ctx, pauseAfter(failed))
		}
		close(tried)
	}()
	select {
	case <-tried:
	case <-time.After(resumeWait):
	case <-s.ctx.Done():
	}
}

// takeName makes one attempt to take over the name of session former for session now, and
// reports whether to make another one.
func (l *legacySession) takeName(s *shim, former, now string) (again bool) {
	l.mu.Lock()
	over := l.holder != former || l.id != now || s.ctx.Err() != nil
	l.mu.Unlock()
	if over {
		return false
	}
	params := append(rawjson.AppendQuote([]byte(`{"name":`), s.agentTool("register")), `,"arguments":{}}`...)
	h, id := l.headers()
	if id != now {
		return false
	}
	h[protocol.HeaderFormer] = []string{protocol.SessionDigest(former)}
	result, err := l.askIn(s, h, "tools/call", params)
	var refused *RPCError
	switch {
	case errors.Is(err, errForgotten):
		return false // the next session does it
	case errors.As(err, &refused) && temporary(refused.Code):
		return true
	case refused != nil, err == nil && rawjson.IsTrue(rawjson.Get(result, "isError")) && !retryable(result):
		s.o.Log.Debug("the name of the session before is not taken over", "err", err)
		now = ""
	case err != nil, rawjson.IsTrue(rawjson.Get(result, "isError")):
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == former {
		l.holder = now
	}
	return false
}

// temporary reports whether the same request may succeed later: a limit is reached, or
// something that the daemon needs is not available.
func temporary(code int64) bool { return code == 1429 || code >= 1502 && code <= 1504 }

// retryable reports whether a tool's error says that the same call may succeed later.
func retryable(result []byte) bool {
	return rawjson.IsTrue(rawjson.GetPath(result, "structuredContent", "error", "retryable"))
}
