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

// The kinds of failure, from the caller's point of view. Every error of this
// package wraps exactly one of them, unless it is the error of the caller's own
// context. Their texts are for the operator's log.
var (
	ErrNotSent  = errors.New("request not sent")                   // certainly never reached the server: safe to repeat
	ErrLost     = errors.New("connection to the server lost")      // the call may have run
	ErrSession  = errors.New("the server forgot the session")      // HTTP 404: not run
	ErrEra      = errors.New("the server does not speak this era") // the handshake of this era failed
	ErrBusy     = errors.New("no child process to spare")          // the cap on children
	ErrStreams  = errors.New("no stream to spare")                 // Definition.MaxStreams
	ErrProtocol = errors.New("the server broke the protocol")      // its answer makes no sense
	ErrTooLarge = errors.New("message from the server too large")  // beyond Definition.MaxMessage
	ErrTimeout  = errors.New("the server did not answer in time")  // the call may have run
	ErrOpen     = errors.New("the server cannot be reached")       // and was not tried: see RetryAfter
	ErrSignIn   = errors.New("the server wants a sign-in")         // a person has to come first: not run
)

// fault is an error of this package: its kind is one of the sentinels, its
// reason constant operator text, reply the server's refusal where there was one.
type fault struct {
	kind   error
	reason string
	cause  error       // not of this package, nil when there is none
	reply  *wire.Error // nil when there is none
	status int         // HTTP status of the refusal, 0 when there is none

	retry time.Duration // before which there is no point in another attempt, 0 when that is unknown
}

// RetryAfter is how long there is no point in another attempt, 0 when err does not say.
func RetryAfter(err error) time.Duration {
	var f *fault
	if !errors.As(err, &f) {
		return 0
	}
	return f.retry
}

// Error names kind and reason. The message of a JSON-RPC error is the server's
// own words and stays out; its code is told.
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

// unsent turns the end of a connection into the error of a call that came too
// late for it. A forgotten session stays one, so that the caller opens a new
// one; everything else is a call that was not sent.
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

// netFault classifies an error of an exchange made under ctx, which comes from
// the caller's context parent. A request that was not provably unsent counts as
// lost.
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

// isConnecting reports an error that came before there was a connection to send
// anything on.
func isConnecting(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, egress.ErrForbidden), errors.As(err, &certificate), errors.As(err, &record):
		return true
	}
	if errors.As(err, &dial) {
		return dial.Op == "dial"
	}
	// No limit but that of the TLS handshake runs in the transport.
	var late net.Error
	return errors.As(err, &late) && late.Timeout() && !isContext(err)
}
