package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/downstream/credential"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// The variables that may hold a token, the first before the second.
const (
	EnvSession = "DOORWARD_SESSION" // of a delivery session
	EnvToken   = "DOORWARD_TOKEN"   // of a session, or the one that a TCP listener takes
)

// Limits of what is presented as a token. Less is refused by the contract; a
// session's own has at most 1,024 bytes, but a token of an issuer may be longer.
const (
	minToken = 16
	maxToken = 8 << 10
)

// Why a token of the environment is not used.
var (
	ErrShortToken = errors.New("it is shorter than 16 characters")
	ErrBadToken   = errors.New("it is too long or has characters that no token has")
)

// TokenFromEnv returns the token of the environment and the variable that it is
// from, empty when none is set. A variable that is set is the only source: an
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

// presentable reports whether a header can carry a token without a doubt.
func presentable(token string) bool {
	return token != "" && len(token) <= maxToken && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// TokenFromFile finds the newest session file in the runtime directory that is
// for this process, or for one above it. refused are files that were not used,
// with the reason. sessionfile.ErrNone: there is none.
func TokenFromFile(runtimeDir string) (f credential.File, refused []error, err error) {
	above, err := peer.Above()
	if err != nil {
		above = nil // then a file that is bound to a process is not known to be ours
	}
	return credential.Find(runtimeDir, func(bind string) bool {
		return bind == "" || slices.ContainsFunc(above, func(p peer.Process) bool { return p.Instance == bind })
	})
}
