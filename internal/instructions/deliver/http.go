package deliver

import (
	"net/http"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Ahead answers the requests that are handled before authentication, and reports whether
// it has: the health check, and a request with a token in its URL, which is refused
// before any other check. path is the path of the request as it was sent.
func Ahead(w http.ResponseWriter, r *http.Request, path string) bool {
	if path != strings.TrimSuffix(prefix, "/") && !strings.HasPrefix(path, prefix) {
		return false
	}
	_, query, _ := strings.Cut(r.RequestURI, "?")
	if pathBearsToken(path) || queryBearsToken(query) {
		tokenInURL().write(w)
		return true
	}
	if path != pathHealth || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	guard(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte(`{"status":"ok"}`))
	return true
}

// Serve answers every path under /auth/ for a caller that the front has authenticated. It
// checks, in this order, the token that was shown, the path, the method, the kind of
// caller, and the query and body.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
	guard(w.Header())
	q := &request{s: s, w: w, r: r, who: who, unix: s.o.Unix(r)}
	if err := q.serve(); err != nil {
		q.fail(err)
	}
}

func (q *request) serve() (err error) {
	q.path, _, _ = strings.Cut(q.r.RequestURI, "?")
	if q.shown, err = shownBy(q.r.Header, isStarted(q.who)); err != nil {
		return malformed()
	}
	if q.s.storage.Away() {
		return q.whileAway()
	}
	if err := q.identify(); err != nil {
		return q.unknown(err)
	}
	if strings.HasPrefix(q.path, prefixAdmin) && !q.unix {
		return q.notHere()
	}
	at, err := q.route()
	if err != nil {
		return err
	}
	if err := q.admitted(at.needs); err != nil {
		return err
	}
	if err := q.read(at); err != nil {
		return err
	}
	return at.serve(q)
}

// whileAway serves requests while the store is not there yet. Tokens cannot be verified
// then, so none is checked. An operator's act is refused behind the gate, as every other.
func (q *request) whileAway() error {
	if !q.unix && isAnonymous(q.who) {
		if err := q.anonymous(); err != nil {
			return q.unknown(err)
		}
	}
	if strings.HasPrefix(q.path, prefixAdmin) && !q.unix {
		return q.notHere()
	}
	at, err := q.route()
	if err != nil {
		return err
	}
	if at.needs != anybody && at.needs != anOperator {
		return unreachable()
	}
	if err := q.read(at); err != nil {
		return err
	}
	return at.serve(q)
}

// route finds the route of the path and the method.
func (q *request) route() (route, error) {
	methods, name, ok := find(q.path)
	if !ok {
		return route{}, notFound()
	}
	q.name = name
	at, ok := methods[q.r.Method]
	if !ok && q.r.Method == http.MethodHead {
		at, ok = methods[http.MethodGet]
		ok = ok && !at.stream
	}
	if !ok {
		return route{}, notAllowed(methods.allow())
	}
	return at, nil
}

// read parses query and body, and refuses what the route does not take.
func (q *request) read(at route) (err error) {
	_, raw, _ := strings.Cut(q.r.RequestURI, "?")
	q.query, err = queryOf(raw, at.query)
	switch {
	case err != nil:
	case at.body > 0:
		q.body, err = bodyOf(q.w, q.r, at.body)
	case hasBody(q.r):
		err = malformed()
	}
	if err != nil && at.needs == anOperator {
		return operatorRequest{q}.wrong(err)
	}
	return err
}

// identify determines the reader from a session token, or from the bearer token that the
// front has verified. A session token that is not valid is a 401 wherever it was shown.
func (q *request) identify() error {
	if q.shown.session != "" {
		return q.identifySession()
	}
	if q.unix {
		return nil // the kernel identifies the caller; see identifyBearer
	}
	if q.shown.beside {
		return errPlace
	}
	if isAnonymous(q.who) {
		return q.anonymous()
	}
	q.reader = q.s.readers.bearerReader(q.who)
	return nil
}

// anonymous admits callers that only a loopback socket identifies to the request for a
// session and to no other. Policy decides it, and denies it by default.
func (q *request) anonymous() error {
	if q.path == pathSession && q.r.Method == http.MethodPost {
		return nil
	}
	return errNoToken
}

func (q *request) identifySession() error {
	if !q.unix && q.shown.beside {
		return errPlace
	}
	found, err := q.s.credentials.check(q.r, q.who, q.shown.session)
	if err != nil {
		return err
	}
	if !q.unix {
		if f, _ := q.who.Fact(factSession); f.Grade != principal.Verified || f.Value != found.ID {
			return errPlace
		}
	}
	q.reader = &Reader{Who: q.who, Session: found, Scope: found.Scope}
	return nil
}

// identifyBearer determines the reader for a route that takes a bearer token. It verifies
// the token of a job that came by the Unix socket, which the front does not check.
func (q *request) identifyBearer() error {
	if q.reader != nil || !q.unix || q.shown == (shown{}) {
		return nil
	}
	by, err := q.s.credentials.proved(q.r, q.who, q.shown)
	if err != nil {
		return q.unknown(err)
	}
	q.reader = q.s.readers.bearerReader(by)
	return nil
}

// admitted refuses a caller that cannot use this kind of request. The gate decides about
// each document.
func (q *request) admitted(n need) error {
	if n == aConnection || n == anOperator {
		return nil
	}
	if err := q.identifyBearer(); err != nil {
		return err
	}
	switch {
	case n == anybody:
		return nil
	case q.reader == nil:
		return q.unknown(errNoToken)
	case n == aSession && q.reader.Session == nil:
		return notPermitted()
	}
	return nil
}

// notHere refuses an operator's path to a caller over TCP. The answer is 404, and the
// attempt is recorded.
func (q *request) notHere() error {
	refusal := q.s.o.Gate.Refuse(gate.Act{Who: q.who, Action: policy.ActionAdmin, Name: ServerName, Kind: gate.Administration, Source: source}, ruleLocal, gate.CodeDenied, 0)
	if refusal.Err != nil {
		return refusal
	}
	return notFound()
}

// ruleLocal is the rule of that refusal.
const ruleLocal = "default.admin-local"

// fail answers with the part of err that the caller may know.
func (q *request) fail(err error) {
	p, loud := problemOf(err)
	if loud {
		q.s.complain(err)
	}
	if p.Status >= http.StatusBadRequest && hasBody(q.r) {
		q.w.Header().Set("Connection", "close") // the rest of the body is not read
	}
	p.write(q.w)
}

// complainEvery is the number of seconds between two log lines about failed requests. It
// keeps callers from filling the log.
const complainEvery = 10

// complain logs a failure that is not the caller's fault.
func (s *Server) complain(err error) {
	now := time.Now().Unix()
	if last := s.web.spoken.Load(); now-last >= complainEvery && s.web.spoken.CompareAndSwap(last, now) {
		s.log.Error("a request under /auth/ failed", "err", err)
	}
}
