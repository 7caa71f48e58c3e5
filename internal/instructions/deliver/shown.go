package deliver

import (
	"errors"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/instructions/session"
)

// spawnToken is the prefix of the token of a started agent, which is valid only as the
// authentication of a connection (authn.SpawnToken).
const spawnToken = "dwa_"

var (
	errTwice   = errors.New("more than one token, or one in two headers")
	errPlace   = errors.New("a token that is not valid for its bearer")
	errNoToken = errors.New("no token")
)

// shown is the token that a request shows in a header: at most one.
type shown struct {
	session string // a session token
	bearer  string // any other token
	wrong   bool   // a token of no valid form

	beside bool // it came in Doorward-Session
}

// shownBy reads the two headers that can carry a token. Each may occur once, and only one
// of them: two readers could take different ones. A started agent needs Authorization for
// its own token, which the front has verified.
func shownBy(h http.Header, started bool) (shown, error) {
	authorization, beside := h["Authorization"], h[protocol.HeaderSession]
	if len(authorization) > 1 || len(beside) > 1 {
		return shown{}, errTwice
	}
	if started {
		authorization = nil
	}
	switch {
	case len(authorization) > 0 && len(beside) > 0:
		return shown{}, errTwice
	case len(beside) > 0:
		token := tokenOf(beside[0])
		token.beside = true
		return token, nil
	case len(authorization) > 0:
		token, ok := bearerOf(authorization[0])
		if !ok {
			return shown{wrong: true}, nil
		}
		return tokenOf(token), nil
	}
	return shown{}, nil
}

func tokenOf(token string) shown {
	switch {
	case strings.HasPrefix(token, session.Prefix):
		return shown{session: token}
	case token == "", strings.HasPrefix(token, spawnToken):
		return shown{wrong: true}
	}
	return shown{bearer: token}
}

// bearerOf returns the token of an Authorization header of the scheme Bearer, in any
// case.
func bearerOf(v string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(v, " ")
	token = strings.Trim(token, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
