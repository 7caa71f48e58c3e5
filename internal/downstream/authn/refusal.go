package authn

import (
	"errors"
	"fmt"
)

var (
	// ErrUnauthenticated is the answer to every caller without an identity (401).
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrMalformed means that two parsers could read the presented token differently
	// (400; RFC 6750, 3.1).
	ErrMalformed = fmt.Errorf("%w: more than one Authorization header", ErrUnauthenticated)
)

// ErrUnverifiable means that the issuer's keys are unavailable, so an access
// token can be neither accepted nor rejected. The request is refused with 503.
var ErrUnverifiable = errors.New("the keys of the issuer are not available")

// Rejection is the reason why an access token was refused: constant text for the
// operator's record. The caller only sees ErrUnauthenticated.
type Rejection string

func (r Rejection) Error() string { return string(r) }

// Is reports that every Rejection is an ErrUnauthenticated.
func (r Rejection) Is(target error) bool { return target == ErrUnauthenticated }

// The reasons, in the order of the checks.
const (
	badForm      Rejection = "an access token that is malformed"
	badAlgorithm Rejection = "an access token with an algorithm that is not accepted"
	badType      Rejection = "a token that is not an access token"
	badIssuer    Rejection = "an access token of another issuer"
	badAudience  Rejection = "an access token for another audience"
	badExpiry    Rejection = "an access token that has expired or does not expire"
	badTime      Rejection = "an access token that is not valid yet"
	badBinding   Rejection = "an access token that is bound to a key of its holder"
	badSubject   Rejection = "an access token without a usable subject"
	badScope     Rejection = "an access token whose scope is malformed"
	badKey       Rejection = "an access token signed by an unknown key"
	badSignature Rejection = "an access token with a wrong signature"
)
