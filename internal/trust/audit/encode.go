package audit

// Lines. Invariant: a line is one valid JSON object on one line, at most MaxLine long,
// whatever texts a caller chose, and its hash is over all bytes before it.

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// tooManyFacts replaces facts that are longer than MaxFacts.
const tooManyFacts = `[{"name":"facts","value":"too long to record","grade":"unavailable"}]`

// tip is the end of the chain: the last record's number and its hash in hex.
type tip struct {
	seq  uint64
	hash [2 * sha256.Size]byte
}

// genesis returns the tip of an empty chain.
func genesis() (t tip) {
	copy(t.hash[:], Genesis)
	return t
}

// bodies holds memory for bodies, of a size that most facts fit into. It belongs to the
// appender until the body was copied into a group.
var bodies = sync.Pool{New: func() any { return new([4096]byte) }}

// makeBody appends the body of the line of r to dst, which is empty: the members from time to
// ref, each with its comma in front. These members do not depend on the place in the chain,
// so a body is made before any lock is taken.
func makeBody(dst []byte, r *Record, now time.Time) body {
	dst = append(appendTime(append(dst, `,"time":"`...), now), '"')
	dst = appendText(dst, `,"kind":`, r.Kind)
	dst = appendText(dst, `,"source":`, r.Source)
	if r.Who.Valid() {
		dst = principal.AppendQuoted(append(dst, `,"principal":`...), r.Who.Name(), principal.MaxName)
	}
	from := len(dst)
	dst = appendFacts(dst, r.Who)
	dst = appendOptional(dst, `,"session":`, r.Session)
	to := len(dst)
	dst = appendOptional(dst, `,"action":`, r.Action)
	dst = appendOptional(dst, `,"resource":`, r.Resource)
	dst = appendOptional(dst, `,"decision":`, r.Decision)
	dst = appendOptional(dst, `,"rule":`, r.Rule)
	dst = appendOptional(dst, `,"result":`, r.Result)
	dst = appendNumber(dst, `,"bytes":`, r.Bytes)
	dst = appendNumber(dst, `,"count":`, r.Count)
	dst = appendOptional(dst, `,"reason":`, r.Reason)
	dst = appendDetail(dst, r.Detail)
	if r.Ref != 0 {
		dst = strconv.AppendUint(append(dst, `,"ref":`...), r.Ref, 10)
	}
	return body{dst, from, to}
}

func appendFacts(dst []byte, who *principal.Principal) []byte {
	facts := who.FactsJSON()
	if len(facts) <= len("[]") {
		return dst
	}
	dst = append(dst, `,"facts":`...)
	if len(facts) > MaxFacts {
		return append(dst, tooManyFacts...)
	}
	return append(dst, facts...)
}

// maxDetail is the number of bytes of details after which a line takes no further
// field; the fields left out are counted.
const maxDetail = 8 << 10

func appendDetail(dst []byte, fields []Field) []byte {
	if len(fields) == 0 {
		return dst
	}
	dst = append(dst, `,"detail":{`...)
	start := len(dst)
	for i, f := range fields {
		if len(dst)-start > maxDetail {
			dst = append(dst, `,"left_out":"`...)
			dst = append(strconv.AppendInt(dst, int64(len(fields)-i), 10), '"')
			break
		}
		if slices.ContainsFunc(fields[:i], func(earlier Field) bool { return earlier.Name == f.Name }) {
			continue // Verify refuses a line with duplicate names
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = principal.AppendQuoted(dst, f.Name, MaxText)
		dst = principal.AppendQuoted(append(dst, ':'), f.Value, MaxText)
	}
	return append(dst, '}')
}

func appendText(dst []byte, member, s string) []byte {
	return principal.AppendQuoted(append(dst, member...), s, MaxText)
}

func appendOptional(dst []byte, member, s string) []byte {
	if s == "" {
		return dst
	}
	return appendText(dst, member, s)
}

func appendNumber(dst []byte, member string, n int64) []byte {
	if n == 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, member...), n, 10)
}

// appendTime appends t in the form of timeShape.
//
// The time package formats RFC 3339 fast only without a fraction. The fraction is
// appended as a number of seven digits, the first of which is replaced by the point.
func appendTime(dst []byte, t time.Time) []byte {
	dst = t.UTC().AppendFormat(dst, time.RFC3339)
	point := len(dst) - 1
	dst = strconv.AppendInt(dst[:point], int64(1_000_000+t.Nanosecond()/1000), 10)
	dst[point] = '.'
	return append(dst, 'Z')
}

// lineRest is the most bytes by which a line is longer than its body.
const lineRest = len(`{"seq":`) + 20 + prevTail + hashTail + 1

// appendLine appends the line of b as the successor of *t, and sets *t to the new
// record.
func appendLine(dst []byte, b body, t *tip, c *callers) []byte {
	start := len(dst)
	t.seq++
	dst = strconv.AppendUint(append(dst, `{"seq":`...), t.seq, 10)
	dst = c.appendReferring(dst, b, t.seq)
	dst = append(append(append(dst, prevMember...), t.hash[:]...), '"')
	sum := sha256.Sum256(dst[start:])
	hex.Encode(t.hash[:], sum[:])
	dst = append(append(dst, hashMember...), t.hash[:]...)
	return append(dst, "\"}\n"...)
}
