// Package watermark gives each delivered text a ref of its own and searches outgoing data
// for such refs.
//
// Its purpose is to trace a text that is passed on word for word, ref line included, to
// the session that received it. It is not a boundary: a paraphrase, a translation, a text
// without its ref line, a ref that is split over several strings, one under two layers of
// encoding, and anything that does not pass through this program are not found.
//
// Invariants: a ref reveals nothing without the key. Only refs in the index are found, so
// there are no false alarms. Strings are compared in their decoded form, whatever escapes
// JSON writes them with. A redacted value is valid JSON without a ref, and every byte
// outside of the cuts is unchanged. A search with an empty index costs nothing.
package watermark

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// prefix is the prefix of every ref.
const prefix = "dwi-"

// refLetters is the number of characters after the prefix: 80 bits in base32.
const refLetters = 16

// Delivery identifies the text and the session that a ref stands for.
type Delivery struct {
	Session  string // id of the delivery session
	Template string // name of the document, or "session" for the composed text
	Revision string // of the reader's view
}

// Ref returns the ref of a delivery: "dwi-" and the first 80 bits of the HMAC-SHA-256 of
// session, template and revision, each preceded by its length as eight bytes, in
// lower-case base32. One key and one delivery give one ref, so it can be computed again
// for a known session.
func Ref(key []byte, d Delivery) string {
	h := hmac.New(sha256.New, key)
	for _, s := range []string{d.Session, d.Template, d.Revision} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:refLetters*5/8]))
}

// IsRef reports whether s has the form of a ref, in lower case.
func IsRef(s string) bool {
	_, ok := keyOf(s)
	return ok
}

// key is a ref without its prefix.
type key [refLetters]byte

func keyOf(ref string) (k key, ok bool) {
	rest, found := strings.CutPrefix(ref, prefix)
	if !found || len(rest) != refLetters {
		return k, false
	}
	for i := range refLetters {
		if !isBase32(rest[i]) {
			return k, false
		}
	}
	return key([]byte(rest)), true
}

func isBase32(c byte) bool { return c >= 'a' && c <= 'z' || c >= '2' && c <= '7' }

// Mode is the action taken on a ref that is found.
type Mode string

// The modes.
const (
	Alert  Mode = "alert"  // it is reported
	Redact Mode = "redact" // it is replaced
	Block  Mode = "block"  // the whole message is blocked
)

// MaxBytes is how much of a raw value is searched. The rest of a larger one passes
// unsearched under alert; under redact and block such a value is blocked.
const MaxBytes = 8 << 20

// Enough is the maximum number of different deliveries that are found in one value,
// except under redact. More would only cost a record each.
const Enough = 8

// Redacted replaces a ref.
const Redacted = "[redacted]"

// Result is the result of a search.
type Result struct {
	Out     []byte     // what may be sent; the value itself when nothing was redacted
	Found   []Delivery // each once, in the order of the bytes; at most Enough, except under Redact
	Blocked bool       // nothing may be sent
}
