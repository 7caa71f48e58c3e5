package agent

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// addressee is a peer in a question to policy, as seen from the caller me.
type addressee struct {
	peer mail.Peer
	me   mail.Peer
	asks []byte // what args returns; nil: not made yet
}

// family holds the lineages that count as near and as the caller's own.
var family = []string{mail.LineageSelf, mail.LineageParent, mail.LineageChild, mail.LineageSibling, mail.LineageOperator, mail.LineageBroker}

// own reports whether the peer has the caller's principal or belongs to the family.
func (a *addressee) own() bool {
	return a.peer.Principal != "" && a.peer.Principal == a.me.Principal || slices.Contains(family, a.peer.Lineage)
}

// near reports whether the peer is in the caller's namespace or belongs to the family.
func (a *addressee) near() bool {
	return a.peer.Namespace == a.me.Namespace || slices.Contains(family, a.peer.Lineage)
}

// args returns the arguments of each question to policy in one call: {"to":{…},"from":{…},"now":…}. now
// is in seconds since 1970, so that a rule can expire.
func (a *addressee) args() []byte {
	if a.asks == nil {
		a.asks = a.makeArgs()
	}
	return a.asks
}

func (a *addressee) makeArgs() []byte {
	who := shortPrincipal(a.peer.Principal, a.me.Node)
	kind, _, _ := principal.Parse(who)
	quote := func(s string) []byte { return rawjson.AppendQuote(nil, s) }
	truth := map[bool][]byte{true: []byte("true"), false: []byte("false")}
	to := rawjson.Set(nil,
		rawjson.Edit{Key: "principal", Value: quote(who)}, rawjson.Edit{Key: "kind", Value: quote(kind)},
		rawjson.Edit{Key: "name", Value: quote(a.peer.Name)}, rawjson.Edit{Key: "namespace", Value: quote(a.peer.Namespace)},
		rawjson.Edit{Key: "lineage", Value: quote(a.peer.Lineage)},
		rawjson.Edit{Key: "own", Value: truth[a.own()]}, rawjson.Edit{Key: "near", Value: truth[a.near()]})
	from := rawjson.Set(nil, rawjson.Edit{Key: "name", Value: quote(a.me.Name)}, rawjson.Edit{Key: "namespace", Value: quote(a.me.Namespace)})
	return rawjson.Set(nil, rawjson.Edit{Key: "to", Value: to}, rawjson.Edit{Key: "from", Value: from},
		rawjson.Edit{Key: "now", Value: strconv.AppendInt(nil, time.Now().Unix(), 10)})
}

// shortPrincipal returns a qualified principal without its node if the node is this one.
// A principal of another node becomes NODE/NAME, which is no principal of this node.
func shortPrincipal(qualified, node string) string {
	at, name, ok := strings.Cut(qualified, " ")
	switch {
	case !ok:
		return qualified
	case at == node:
		return name
	}
	return at + "/" + name
}

// addressOf returns the address of a peer for a caller in the namespace mine.
func addressOf(name, namespace, mine string) string {
	if namespace == "" || namespace == mine || name == mail.Operator {
		return name
	}
	return name + "@" + namespace
}

// distance returns the edit distance of two names: insertions, deletions and
// substitutions of bytes.
func distance(a, b string) int {
	if len(a) > 320 || len(b) > 320 {
		return len(a) + len(b)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
