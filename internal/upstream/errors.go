package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// Kinds of failure, from the caller's point of view. Every error of this package wraps
// exactly one of them, unless it is the error of the caller's own context. Their texts are
// for the operator's log.
var (
	ErrNotSent  = errors.New("request not sent")                   // it certainly never reached the server: safe to repeat
	ErrLost     = errors.New("connection to the server lost")      // the call may have run
	ErrSession  = errors.New("the server forgot the session")      // HTTP 404: not run
	ErrEra      = errors.New("the server does not speak this era") // the handshake of this era failed
	ErrBusy     = errors.New("no child process is available")      // the cap on children
	ErrStreams  = errors.New("no stream is available")             // Definition.MaxStreams
	ErrProtocol = errors.New("the server broke the protocol")      // its answer is invalid
	ErrTooLarge = errors.New("message from the server too large")  // beyond Definition.MaxMessage
	ErrTimeout  = errors.New("the server did not answer in time")  // the call may have run
	ErrOpen     = errors.New("the server cannot be reached")       // it was not tried: see RetryAfter
	ErrSignIn   = errors.New("the server requires a sign-in")      // a person has to sign in first: not run
)

// fault is an error of this package. Its kind is one of these errors, its reason constant
// text for the operator, and reply the server's refusal if there was one.
type fault struct {
	kind   error
	reason string
	cause  error       // not of this package, nil when there is none
	reply  *wire.Error // nil when there is none
	status int         // HTTP status of the refusal, 0 when there is none

	retry time.Duration // how long another attempt is pointless, 0 if that is unknown
}

// RetryAfter returns how long another attempt is pointless, 0 if err does not say.
func RetryAfter(err error) time.Duration {
	var f *fault
	if !errors.As(err, &f) {
		return 0
	}
	return f.retry
}

// Error names kind and reason. Of a JSON-RPC error it includes only the code, because the
// message is the server's text.
func (f *fault) Error() string {
	text := f.kind.Error()
	if f.reason != "" {
		text += ": " + f.reason
	}
	if f.status != 0 {
		text += fmt.Sprintf(" (HTTP %d)", f.status)
	}
	if f.reply != nil {
		text += fmt.Sprintf(" (code %d)", f.reply.Code)
	}
	if f.cause != nil {
		text += ": " + f.cause.Error()
	}
	return text
}

// Unwrap lets errors.Is find the sentinel and errors.As the *wire.Error.
func (f *fault) Unwrap() []error {
	errs := []error{f.kind}
	if f.cause != nil {
		errs = append(errs, f.cause)
	}
	if f.reply != nil {
		errs = append(errs, f.reply)
	}
	return errs
}

func newFault(kind error, reason string) error {
	return &fault{kind: kind, reason: reason}
}

func newFaultf(kind error, reason string, cause error) error {
	return &fault{kind: kind, reason: reason, cause: cause}
}

// unsent makes the error of a call that is made after the end of a connection. A lost session
// stays ErrSession, so that the caller opens a new one; every other end is ErrNotSent.
func unsent(end error) error {
	if errors.Is(end, ErrSession) {
		return newFault(ErrSession, "the session ended earlier")
	}
	return newFault(ErrNotSent, "the connection is closed")
}

// isContext reports whether err is the error of a context.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

var errClosed = newFault(ErrLost, "the connection was closed here")

// netFault classifies an error of an exchange made under ctx, which is derived from the
// caller's context parent. A request that may have been sent counts as lost.
func netFault(parent, ctx context.Context, err error) error {
	var f *fault
	var timeout net.Error
	switch {
	case parent.Err() != nil:
		return parent.Err()
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return newFault(ErrTimeout, "")
	case ctx.Err() != nil:
		return errClosed
	case errors.As(err, &f):
		return err
	case isConnecting(err):
		return newFaultf(ErrNotSent, "connecting to the server", err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return newFaultf(ErrTimeout, "", err)
	}
	return newFaultf(ErrLost, "talking to the server", err)
}

// isConnecting reports whether an error came before a connection existed on which anything
// could be sent.
func isConnecting(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, egress.ErrForbidden), errors.Is(err, egress.ErrUnconnected), errors.As(err, &certificate), errors.As(err, &record):
		return true
	}
	if errors.As(err, &dial) {
		return dial.Op == "dial"
	}
	// Apart from contexts, only the TLS handshake has a limit in the transport.
	var late net.Error
	return errors.As(err, &late) && late.Timeout() && !isContext(err)
}

// isPatience reports whether err says that the caller's context or limit has ended.
func isPatience(err error) bool {
	return isContext(err) || errors.Is(err, ErrTimeout)
}
