package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/principal"
)

// A code over a connection that has ended is good for another sign-in, because nothing got a
// cookie. A code of a program that may not sign in is used up.
func TestACodeOfAConnectionThatHasEndedIsNotUsedUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		refusal error
		again   int // status of the next sign-in with the code
	}{
		"the connection has ended": {fmt.Errorf("%w: gone", ErrGone), http.StatusSeeOther},
		"the program is unknown":   {fmt.Errorf("%w: hidden", ErrUnknownProgram), http.StatusForbidden},
		"the program is an agent":  {agent.ErrAgentShell, http.StatusForbidden},
		"it cannot be judged":      {errors.New("not now"), http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusal := tc.refusal
			c, err := New(Options{
				MayBegin: func(*http.Request) error { return refusal },
				Event:    func(*principal.Principal, string, string) {},
				Refused:  func(*http.Request, string) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			v := visit("127.0.0.1:7866", "/usr/bin/browser")
			code, _ := c.sessions.issue(operator(), v.Listener)
			if got := signInWith(c, v, code); got.Code != http.StatusForbidden || got.Header().Get("Set-Cookie") != "" || len(c.sessions.sessions) != 0 {
				t.Errorf("refused with %d, %d sessions", got.Code, len(c.sessions.sessions))
			}
			refusal = nil
			if got := signInWith(c, v, code).Code; got != tc.again {
				t.Errorf("again: %d, want %d", got, tc.again)
			}
		})
	}
}

func signInWith(c *Console, v Visit, code string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:7866/ui/session", strings.NewReader(url.Values{"code": {code}}.Encode()))
	r.Header.Set("Origin", "http://127.0.0.1:7866")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	c.signIn(w, r, v)
	return w
}
