package console

import (
	"crypto/subtle"
	"errors"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Prefix is the path of the console.
const Prefix = "/ui/"

// Visit describes the connection of a request.
type Visit struct {
	Listener string // the bound address; cookies and codes belong to one listener
	Scheme   string // http or https
	Program  string // the path of the program at the other end; empty: unknown
}

// contentPolicy allows nothing from outside, nothing inline and no framing. A string can become
// markup only through the one function of console.js.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types doorward"

// protect sets the headers of every answer. Referrer-Policy is not no-referrer, because a
// browser would then hide the Origin of a posted form.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// loopbackHost reports whether a Host names this machine: localhost or a loopback literal.
// Another name of `listen.http.hosts` might be resolved by a foreign name server.
func loopbackHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && ip.IsLoopback()
}

// cookieName returns a name that depends on the port, because a browser sends a cookie to every
// port of a host.
func cookieName(v Visit) string {
	_, port, err := net.SplitHostPort(v.Listener)
	if err != nil {
		port = "0"
	}
	return "doorward-" + port
}

// cookie returns the secret in the cookie of a request; empty: there is not exactly one cookie.
func cookie(r *http.Request, v Visit) string {
	all := r.CookiesNamed(cookieName(v))
	if len(all) != 1 {
		return ""
	}
	return all[0].Value
}

func setCookie(w http.ResponseWriter, v Visit, secret string) {
	c := &http.Cookie{Name: cookieName(v), Value: secret, Path: Prefix, HttpOnly: true, Secure: v.Scheme == "https", SameSite: http.SameSiteStrictMode}
	if secret == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// maxForm is the largest form in bytes: a message of the largest configurable size.
const maxForm = 2 << 20

var (
	errOrigin = errors.New("a form that does not come from the console")
	errForm   = errors.New("a form that cannot be read")
)

// form reads the fields of a POST that a page of the console sent: its Origin must be the
// address of the console, whatever other origins the listener accepts.
func form(w http.ResponseWriter, r *http.Request, v Visit) (url.Values, error) {
	if o := r.Header["Origin"]; len(o) != 1 || o[0] != v.Scheme+"://"+r.Host {
		return nil, errOrigin
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, errForm
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, errForm
	}
	return r.PostForm, nil
}

// sameToken compares the token of a form with that of its session.
func sameToken(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}
