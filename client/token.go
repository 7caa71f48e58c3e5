package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/downstream/credential"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// The environment variables that may hold a token. EnvSession takes precedence.
const (
	EnvSession = "DOORWARD_SESSION" // of a delivery session
	EnvToken   = "DOORWARD_TOKEN"   // of a delivery session, or a bearer token for a TCP listener
)

// Limits of the length of a token. A session's token has at most 1,024 bytes, but a token
// of an issuer may be longer.
const (
	minToken = 16
	maxToken = 8 << 10
)

// Errors of TokenFromEnv.
var (
	ErrShortToken = errors.New("it is shorter than 16 characters")
	ErrBadToken   = errors.New("it is too long or has characters that a token cannot have")
)

// TokenFromEnv returns the token of the environment and the name of its variable; both are
// empty if no variable is set. A variable that is set is the only source: an
// unusable token in it is an error, and no other source is tried.
func TokenFromEnv(env func(string) (string, bool)) (token, variable string, err error) {
	if env == nil {
		return "", "", nil
	}
	for _, variable := range [...]string{EnvSession, EnvToken} {
		token, _ := env(variable)
		token = strings.TrimSpace(token)
		switch {
		case token == "":
			continue
		case len(token) < minToken:
			return "", variable, fmt.Errorf("%s: %w", variable, ErrShortToken)
		case !presentable(token):
			return "", variable, fmt.Errorf("%s: %w", variable, ErrBadToken)
		}
		return token, variable, nil
	}
	return "", "", nil
}

// presentable reports whether a header can carry a token: it consists of 1 to maxToken
// characters of visible ASCII.
func presentable(token string) bool {
	return token != "" && len(token) <= maxToken && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// TokenFromFile returns the newest session file in the runtime directory that is for this
// process or a process above it. refused holds an error for each file that was not used.
// If there is no file, err is credential.ErrNone.
func TokenFromFile(runtimeDir string) (f credential.File, refused []error, err error) {
	above, err := peer.Above()
	if err != nil {
		above = nil // then files that are bound to a process are not used
	}
	return credential.Find(runtimeDir, func(bind string) bool {
		return bind == "" || slices.ContainsFunc(above, func(p peer.Process) bool { return p.Instance == bind })
	})
}
