package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
)

// exchangeError is an error of an exchange with an upstream, with a text of Doorward's own.
//
// The errors of net/http, crypto/x509 and HTTP/2 quote what the upstream sent: a malformed header
// line, a status text, a trailer, a name in a certificate, the debug data of a GOAWAY. The upstream
// knows Doorward's credential and may repeat it, so none of that is shown. The wrapped error is
// only for errors.Is and errors.As.
type exchangeError struct {
	words string
	cause error
}

func (e *exchangeError) Error() string { return e.words }
func (e *exchangeError) Unwrap() error { return e.cause }

// Timeout and Temporary make it a net.Error, as the errors of net/http are.
func (e *exchangeError) Timeout() bool   { return isTimeout(e.cause) }
func (e *exchangeError) Temporary() bool { return isTimeout(e.cause) }

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// inWords wraps err in an exchangeError. Errors of a context stay unchanged.
func inWords(err error) error {
	if err == nil || err == io.EOF || err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	return &exchangeError{words(err), err}
}

var (
	errLongHeader = errors.New("the header of the answer exceeds the limit")
	errNoStatus   = errors.New("the answer has no final status")
)

// constant lists errors whose text contains nothing of the upstream.
var constant = []error{errLongHeader, errNoStatus, errProxyRefused, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded, http.ErrSchemeMismatch,
	context.Canceled, context.DeadlineExceeded}

// words describes an error by its kind. The text of an error of unknown kind is not used.
func words(err error) string {
	var op *net.OpError
	var name *net.DNSError
	var number syscall.Errno
	var proxy unusable
	switch {
	case errors.As(err, &proxy):
		return proxy.Error()
	case errors.Is(err, ErrForbidden): // made in this package, possibly wrapped by net
		return err.Error()
	case errors.As(err, &op):
		return operation(op)
	case errors.As(err, &name):
		return lookUp(name)
	case isTLS(err):
		return aboutTLS(err)
	case isTimeout(err):
		return "it did not answer in time"
	case errors.As(err, &number):
		return number.Error()
	}
	if i := slices.IndexFunc(constant, func(c error) bool { return errors.Is(err, c) }); i >= 0 {
		return constant[i].Error()
	}
	if errors.Is(err, io.EOF) {
		return "it closed the connection"
	}
	return "what it sent is not valid HTTP, or it broke off"
}

// lookUp omits the name, because the metadata of a server may have named it.
func lookUp(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "looking up its name: no such host"
	case err.IsTimeout:
		return "looking up its name: no answer in time"
	}
	return "looking up its name failed"
}

// operation names the step and the address, and describes the reason.
func operation(op *net.OpError) string {
	text := op.Op
	if op.Addr != nil {
		text += " " + op.Addr.Network() + " " + op.Addr.String()
	}
	if op.Op == "remote error" || op.Op == "local error" { // the name of a TLS alert, from a fixed list
		return "TLS: " + op.Op + ": " + op.Err.Error()
	}
	return text + ": " + words(op.Err)
}

func isTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &record)
}

// aboutTLS describes the fault of a certificate, without the names in it.
func aboutTLS(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &authority):
		return "TLS: its certificate is signed by an authority that is not trusted here"
	case errors.As(err, &host):
		return "TLS: its certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "TLS: its certificate has expired or is not valid yet"
	case errors.As(err, &certificate):
		return "TLS: its certificate is not valid"
	}
	return "TLS: it does not speak TLS"
}

// Worded is a transport to upstreams whose errors, including those of reading bodies, repeat
// nothing of the upstream. It removes the Location from answers: no redirect is followed, and an
// http.Client quotes one that it cannot parse.
type Worded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (w Worded) RoundTrip(req *http.Request) (*http.Response, error) {
	return worded(w.Transport.RoundTrip(req))
}

func worded(resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, inWords(err)
	}
	delete(resp.Header, "Location")
	resp.Body = wordedBody{resp.Body}
	return resp, nil
}

type wordedBody struct{ io.ReadCloser }

func (b wordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, inWords(err)
}
