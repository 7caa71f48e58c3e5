package console

import (
	"errors"
	"net/http"
)

// Actions of records.
const (
	eventSignIn  = "ui.sign-in"
	eventSignOut = "ui.sign-out"
)

// signInPage explains how to sign in. Its script submits the code in the fragment of the
// address.
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

// signIn serves POST /ui/session: it takes a code and sets the cookie.
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
	secret, s, err := c.sessions.redeem(f.Get("code"), v)
	if err != nil {
		c.o.Refused(r, err.Error())
		http.Error(w, "This code is not valid: run doorward ui again.", http.StatusForbidden)
		return
	}
	if old := c.sessions.find(cookie(r, v), v); old != nil {
		c.sessions.close(old)
	}
	c.o.Event(s.by.Who, eventSignIn, "")
	setCookie(w, v, secret)
	http.Redirect(w, r, Prefix, http.StatusSeeOther)
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
