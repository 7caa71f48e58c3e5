package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/messaging/agent"
)

// Actions of records.
const (
	eventSignIn  = "ui.sign-in"
	eventSignOut = "ui.sign-out"
	eventRefused = "ui.refused"
)

// signInPage explains how to sign in, and has a field for the code. Its script submits the
// code in the fragment of the address.
func (c *Console) signInPage(w http.ResponseWriter, r *http.Request, path string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.o.Refused(r, "the console without a session")
		http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
		return
	}
	status := http.StatusOK
	if path != "/" {
		w.Header().Set("WWW-Authenticate", `Doorward realm="run doorward ui"`)
		status = http.StatusUnauthorized
	}
	c.views.write(w, status, "signin", "layout", page{Title: "Sign in"})
}

// The texts for a code that begins no session.
const (
	notValid = "This code is not valid: it was used, or is older than a minute. Run doorward ui again."
	notYours = "Refused: this program has used a server of Doorward, as an agent or MCP client does, or was started by such a program. Restart the browser yourself, or use another one, and run doorward ui again."
	notKnown = "Refused: the program of this connection cannot be determined. Use a browser on this machine without a tunnel, and run doorward ui again."
	notNow   = "The daemon cannot determine now who signs in. Run doorward ui again later; doorward status has the reason."
)

// signIn serves POST /ui/session: it takes a code and sets the cookie. A code that a program of
// an agent presents is used up, because the operator did not give it to that program. A code that
// comes over a connection that has ended is not used up, because no cookie was sent.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request, v Visit) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	f, err := form(w, r, v)
	if err != nil {
		c.o.Refused(r, err.Error())
		http.Error(w, http.StatusText(formStatus(err)), formStatus(err))
		return
	}
	code := strings.TrimSpace(f.Get("code"))
	secret, s, err := c.sessions.redeem(code, v)
	if err != nil {
		c.o.Refused(r, err.Error())
		http.Error(w, notValid, http.StatusForbidden)
		return
	}
	if err := c.o.MayBegin(r); err != nil {
		if errors.Is(err, ErrGone) {
			c.sessions.giveBack(code, s)
		}
		c.sessions.close(s)
		text, why := unwelcome(err)
		c.o.Event(s.by.Who, eventRefused, why+": "+err.Error())
		http.Error(w, text, http.StatusForbidden)
		return
	}
	if old := c.sessions.find(cookie(r, v), v); old != nil {
		c.sessions.close(old)
	}
	c.o.Event(s.by.Who, eventSignIn, "")
	setCookie(w, v, secret)
	http.Redirect(w, r, Prefix, http.StatusSeeOther)
}

// unwelcome returns the answer to a program that may not begin a session, and the reason for
// the record.
func unwelcome(err error) (text, why string) {
	switch {
	case errors.Is(err, ErrGone):
		return notNow, "a code over a connection that has ended"
	case errors.Is(err, ErrUnknownProgram):
		return notKnown, "a code from a program that cannot be determined"
	case errors.Is(err, agent.ErrAgentShell):
		return notYours, "a code from a program that is an agent or MCP client, or below one"
	}
	return notNow, "a code that could not be judged"
}

func formStatus(err error) int {
	if errors.Is(err, errOrigin) {
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}

// signOut serves POST /ui/sign-out.
func (c *Console) signOut(q *request) error {
	c.sessions.close(q.s)
	c.o.Event(q.s.by.Who, eventSignOut, "")
	setCookie(q.w, q.v, "")
	http.Redirect(q.w, q.r, Prefix, http.StatusSeeOther)
	return nil
}
