package principal

// Names. Invariant: a principal has one spelling, so that names compare as text.

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/trust/visible"
)

// The kinds of principal. A name is the kind, a colon, and a rest whose form depends on the kind.
const (
	KindUID      = "uid"      // uid:1000, a local user attested by the kernel
	KindToken    = "token"    // token:NAME, the holder of a bearer token
	KindLoopback = "loopback" // loopback:uid=1000, the owner of a loopback socket, or loopback:unknown
	KindOAuth    = "oauth"    // oauth:ISSUER#SUBJECT, the subject of an access token
	KindSpawn    = "spawn"    // spawn:ID, an agent that the daemon started
)

// LoopbackUnknown is the name of a loopback caller whose owner the system cannot
// determine.
const LoopbackUnknown = KindLoopback + ":unknown"

// MaxName is the most bytes a name may have.
const MaxName = 768

// ErrName is wrapped by every refusal of Parse.
var ErrName = errors.New("not a principal name")

// UID returns the name of the local user n. The uid 4294967295 means "no user" to
// the kernel and yields a name that Parse refuses.
func UID(n uint32) string { return KindUID + ":" + strconv.FormatUint(uint64(n), 10) }

// Token returns the name of the holder of the bearer token called name: 1 to 64 of
// A-Z a-z 0-9 . _ -, not beginning with a dot or a dash.
func Token(name string) string { return KindToken + ":" + name }

// Loopback returns the name of the unauthenticated loopback caller whose socket
// uid owns.
func Loopback(uid uint32) string { return KindLoopback + ":uid=" + strconv.FormatUint(uint64(uid), 10) }

// OAuth returns the name of the subject of an access token of issuer, an http or https URL
// without a fragment. The subject is any printable text of at most 255 bytes.
func OAuth(issuer, subject string) string { return KindOAuth + ":" + issuer + "#" + subject }

// Spawn returns the name of an agent that the daemon started. The id is 1 to 128 of
// A-Z a-z 0-9 _ -.
func Spawn(id string) string { return KindSpawn + ":" + id }

// Parse splits a canonical name into its kind and the rest. Every other
// spelling, unknown kinds included, is an error that wraps ErrName.
func Parse(name string) (kind, rest string, err error) {
	kind, rest, ok := strings.Cut(name, ":")
	if !ok || len(name) > MaxName || !wellFormed(kind, rest) {
		return "", "", fmt.Errorf("%w: %.64q", ErrName, name)
	}
	return kind, rest, nil
}

func wellFormed(kind, rest string) bool {
	switch kind {
	case KindUID:
		return isUID(rest)
	case KindToken:
		return len(rest) <= 64 && isWord(rest, "._-") && rest[0] != '.' && rest[0] != '-'
	case KindLoopback:
		uid, ok := strings.CutPrefix(rest, "uid=")
		return rest == "unknown" || ok && isUID(uid)
	case KindOAuth:
		issuer, subject, ok := strings.Cut(rest, "#")
		return ok && isIssuer(issuer) && len(subject) <= 255 && isPrintable(subject)
	case KindSpawn:
		return len(rest) <= 128 && isWord(rest, "_-")
	}
	return false
}

// isUID accepts the canonical decimal form of a uid_t other than (uid_t)-1, which
// the kernel reports for a socket without a peer.
func isUID(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n != 1<<32-1 && strconv.FormatUint(n, 10) == s
}

func isIssuer(s string) bool {
	if !isPrintable(s) || strings.ContainsRune(s, ' ') {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
}

// isWord reports whether s has only ASCII letters, digits and the characters of also.
func isWord(s, also string) bool {
	const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	return s != "" && strings.Trim(s, alphanumeric+also) == ""
}

// isPrintable refuses control characters and invisible characters (bidirectional,
// zero-width and tag characters): names that differ only in them would look like
// one principal.
func isPrintable(s string) bool { return s != "" && visible.AllPrintable(s) }
