package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/upstream/egress"
)

// Credential authenticates Doorward to one server beyond Definition.Headers. It is safe for
// concurrent use.
type Credential interface {
	// Authorize returns the Authorization header for the next request, "" for none.
	Authorize(ctx context.Context) (string, error)
	// Refused handles a 401 or 403 to a request that carried used. again: the request should
	// be sent once more. An error that wraps ErrSignIn says that a person has to sign in
	// first. The caller closes the response.
	Refused(ctx context.Context, used string, resp *http.Response) (again bool, err error)
}

// roundTrip sends every request to a server over the network. A request that was refused for
// its credential has not run, and is sent once more if Credential.Refused says so.
func (s *Server) roundTrip(req *http.Request) (*http.Response, error) {
	cred := s.deps.Credential
	if cred == nil || req.URL != s.url && egress.Origin(req.URL) != s.origin {
		return s.exchange(req)
	}
	resp, used, err := s.authorized(req)
	if err != nil || !isCredential(resp.StatusCode) {
		return resp, err
	}
	again, err := cred.Refused(req.Context(), used, resp)
	if err == nil && !again {
		return resp, nil
	}
	resp.Body.Close()
	if err != nil {
		return nil, credentialFault(req.Context(), err)
	}
	if req.GetBody != nil {
		if req.Body, err = req.GetBody(); err != nil {
			return nil, newFaultf(ErrNotSent, "repeating the request", err)
		}
	}
	resp, _, err = s.authorized(req)
	return resp, err
}

// authorized sends req with the current credential. The header of req is shared, so it is
// copied.
func (s *Server) authorized(req *http.Request) (resp *http.Response, used string, err error) {
	used, err = s.deps.Credential.Authorize(req.Context())
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, "", credentialFault(req.Context(), err)
	}
	if used != "" {
		req = req.WithContext(req.Context())
		req.Header = maps.Clone(req.Header)
		req.Header["Authorization"] = []string{used}
	}
	resp, err = s.exchange(req)
	return resp, used, err
}

// credentialFault returns the error of a request that was not sent for lack of a credential.
func credentialFault(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrSignIn):
		return newFaultf(ErrSignIn, "", err)
	}
	return newFaultf(ErrNotSent, "no credential for the server", err)
}

// exchange sends one request, if the circuit is closed, and waits for the header of the answer.
func (s *Server) exchange(req *http.Request) (*http.Response, error) {
	probe, wait := s.circuit.enter()
	if wait > 0 {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &fault{kind: ErrOpen, retry: wait}
	}
	ctx := req.Context()
	resp, err := s.firstByte(req)
	s.circuit.done(probe, ctx, err)
	return resp, err
}

// errFirstByte is the error when the header of an answer does not come in time.
var errFirstByte = newFault(ErrTimeout, "the answer did not begin in time")

// firstByte limits the wait for the header. The context of the answer lives until its body is
// closed.
func (s *Server) firstByte(req *http.Request) (*http.Response, error) {
	limit := s.def.FirstByte
	if limit <= 0 {
		return s.transport.RoundTrip(req)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(limit, func() { cancel(errFirstByte) })
	resp, err := s.transport.RoundTrip(req.WithContext(ctx))
	if !timer.Stop() && err == nil {
		resp.Body.Close()
		err = errFirstByte
	}
	if err != nil {
		if context.Cause(ctx) == errFirstByte {
			err = errFirstByte
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &ownedBody{ReadCloser: resp.Body, end: func() { cancel(nil) }}
	return resp, nil
}

// ownedBody ends its context when it is closed.
type ownedBody struct {
	io.ReadCloser
	end func()
}

func (b *ownedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// Await is egress.Await for the body inside.
func (b *ownedBody) Await(f func()) bool { return egress.Await(b.ReadCloser, f) }

// idleBody detects silence on a body. It ends the request, because a body must not be closed
// while it is read.
type idleBody struct {
	io.ReadCloser
	timer *time.Timer
	limit time.Duration
}

// watch limits the silence on a body; 0: no limit. expire ends the request, or returns how
// much longer it may take.
func watch(body io.ReadCloser, limit time.Duration, expire func() time.Duration) io.ReadCloser {
	if limit <= 0 {
		return body
	}
	b := &idleBody{ReadCloser: body, limit: limit}
	b.timer = time.AfterFunc(never, func() {
		if more := expire(); more > 0 {
			b.timer.Reset(more)
		}
	})
	b.timer.Reset(limit)
	return b
}

// never is longer than any limit.
const never = 1 << 62

func (b *idleBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.timer.Stop()
	} else if n > 0 {
		b.timer.Reset(b.limit)
	}
	return n, err
}

// Await is egress.Await for the body inside.
func (b *idleBody) Await(f func()) bool { return egress.Await(b.ReadCloser, f) }

func (b *idleBody) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// errIdle is the error of a call that was silent for too long.
var errIdle = newFault(ErrTimeout, "the server sent nothing for too long")

// noted reports to the operator that a circuit has opened or closed.
func (s *Server) noted(open bool, failures int, wait time.Duration) {
	if open {
		s.log.Warn("server cannot be reached: calls are refused for a while", slog.Int("failures", failures), slog.Duration("next", wait))
	} else {
		s.log.Info("server can be reached again")
	}
	if s.deps.Notice != nil {
		s.deps.Notice(s.def.Name, open)
	}
}

// enterStream counts a stream that is held open beside the calls. The caller calls leave
// after it, if enterStream succeeds.
func (s *Server) enterStream() (leave func(), err error) {
	if n := s.streams.Add(1); s.def.MaxStreams > 0 && int(n) > s.def.MaxStreams {
		s.streams.Add(-1)
		return nil, newFault(ErrStreams, "")
	}
	return func() { s.streams.Add(-1) }, nil
}

func isCredential(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}
