package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/passkey"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
)

// request is one request of a session.
type request struct {
	c   *Console
	w   http.ResponseWriter
	r   *http.Request
	v   Visit
	s   *session
	in  url.Values // the query of a GET, or the form of a POST
	ctx context.Context

	path      string // below Prefix
	continues bool   // it is part of the record of an earlier request
}

// route is one page or act. Exactly one of the functions is set.
type route struct {
	what string // its name in the record
	// show returns the data of a page.
	show func(*request) (page, error)
	// act executes an act and returns a message and the next page.
	act func(*request) (said, next string, err error)
	raw func(*request) error
}

// acts holds the acts of the forms.
type acts struct{ c *Console }

// errNotFound means that the subject of a page does not exist.
var errNotFound = errors.New("there is no such item")

// errAway means that a part is off, or that its database cannot be used.
var errAway = errors.New("this part of the daemon is off, or its database cannot be used now")

// read parses the query, or the form, and checks the token of a form.
func (q *request) read() (err error) {
	if q.r.Method == http.MethodGet {
		if q.in, err = url.ParseQuery(q.r.URL.RawQuery); err != nil {
			return errForm
		}
		return q.wellFormed()
	}
	if q.in, err = form(q.w, q.r, q.v); err != nil {
		q.c.o.Refused(q.r, err.Error())
		return err
	}
	if !sameToken(q.in.Get("csrf"), q.s.csrf) {
		q.c.o.Refused(q.r, errOrigin.Error())
		return errOrigin
	}
	return q.wellFormed()
}

func (q *request) wellFormed() error {
	for _, values := range q.in {
		if len(values) != 1 || !utf8.ValidString(values[0]) {
			return errForm
		}
	}
	return nil
}

// part reports whether htmx requests the live part of a page that the session was shown: this
// continues the act that showed the page. Any other request for a part is an act of its own.
func (q *request) part() bool {
	return q.in.Get("part") != "" && q.r.Header.Get("HX-Request") == "true" && q.c.sessions.wasShown(q.s, q.path)
}

func (q *request) serve(to route) error {
	if q.continues = to.show != nil && q.part(); q.continues {
		if !q.c.o.Allows(q.ctx, q.s.by, "ui/"+to.what) {
			return &gate.Refusal{Code: gate.CodeDenied}
		}
		return q.show(to, "live")
	}
	leave, err := q.c.o.Enter(q.ctx, q.s.by, "ui/"+to.what)
	if err != nil {
		return err
	}
	defer leave()
	switch {
	case to.raw != nil:
		return to.raw(q)
	case to.show != nil:
		return q.show(to, "layout")
	}
	said, next, err := to.act(q)
	if err != nil {
		return err
	}
	q.c.sessions.touch(q.s)
	q.c.sessions.say(q.s, said)
	http.Redirect(q.w, q.r, Prefix+strings.TrimPrefix(next, "/"), http.StatusSeeOther)
	return nil
}

func (q *request) show(to route, part string) error {
	seq := q.c.o.Seq()
	p, err := to.show(q)
	if err != nil {
		return err
	}
	p.Seq = seq
	if p.CSRF = q.s.csrf; part == "layout" {
		p.Flash = q.c.sessions.touch(q.s)
		if p.Live {
			q.c.sessions.shows(q.s, q.path)
		}
	}
	p.Who = q.s.by.Who.Name()
	q.c.views.write(q.w, http.StatusOK, p.View, part, p)
	return nil
}

func (q *request) json(v any, err error) error {
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(q.w).Encode(v)
}

// failed shows the reason of an error.
func (q *request) failed(err error) {
	status, text := failure(err)
	if status == http.StatusInternalServerError {
		q.c.o.Log.Error("a page of the console", "path", q.r.URL.Path, "err", err)
	}
	q.c.views.write(q.w, status, "failed", "layout", page{Title: http.StatusText(status), CSRF: q.s.csrf, Who: q.s.by.Who.Name(), Data: text})
}

// failure returns the status of an error, and a text for the operator.
func failure(err error) (status int, text string) {
	var refusal *gate.Refusal
	var wrong *mail.Error
	switch {
	case errors.Is(err, errNotFound), errors.Is(err, admin.ErrNotFound), errors.Is(err, library.ErrUnknown):
		return http.StatusNotFound, "There is no such page or item."
	case errors.Is(err, errOrigin):
		return http.StatusForbidden, "The form does not belong to this session. Open the page again."
	case errors.Is(err, errForm), errors.Is(err, ErrVerdict):
		return http.StatusBadRequest, "The form cannot be read."
	case errors.Is(err, admin.ErrPasskey):
		return http.StatusForbidden, "An approval needs a passkey: approve it on the page Decisions."
	case errors.Is(err, passkey.ErrRefused):
		return http.StatusForbidden, "The answer of the passkey is not valid: it was for something else, came twice, or came too late. Try again."
	case errors.Is(err, passkey.ErrNone):
		return http.StatusConflict, "No passkey is registered: add one on the page Passkeys first."
	case errors.Is(err, passkey.ErrName):
		return http.StatusBadRequest, "A name has 1 to 64 visible characters."
	case errors.Is(err, admin.ErrStale):
		return http.StatusConflict, "Not done: it was decided elsewhere, has expired, or has changed since it was shown. Look at Decisions again."
	case errors.Is(err, deliver.ErrStore):
		return http.StatusServiceUnavailable, "The database of the daemon does not work now, so it cannot tell whether an agent opened this console. Run doorward status, which says why."
	case errors.Is(err, errAway):
		return http.StatusServiceUnavailable, "This part of the daemon is off, or its database cannot be used now."
	case errors.As(err, &refusal):
		return http.StatusForbidden, "Refused: " + refusal.Error()
	case errors.Is(err, agent.ErrAgentShell), errors.Is(err, deliver.ErrShell):
		return http.StatusForbidden, "Refused: this console was opened below a process that is an agent now. Run doorward ui in another terminal."
	case errors.As(err, &wrong):
		return http.StatusConflict, "Not done: " + wrong.Code
	}
	for _, known := range []error{library.ErrAmbiguous, library.ErrRevoked, library.ErrWithdrawn, library.ErrAbsent, library.ErrLabel, library.ErrRemote, library.ErrNowhere} {
		if errors.Is(err, known) {
			return http.StatusConflict, "Not done: " + known.Error()
		}
	}
	return http.StatusInternalServerError, "The request failed. The reason is in the daemon's log."
}

func number(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, errForm
	}
	return n, nil
}
