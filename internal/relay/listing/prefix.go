package listing

import (
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/resolve"
)

// Page is the request for one server's share of a merged list.
type Page struct {
	Server string
	Cursor []byte // raw inner cursor to ask with; nil: from the start
}

// Share is the part of a merged list from one server.
type Share struct {
	Server  string
	Entries []byte // a JSON array with the aggregate's names; nil: none
	Next    []byte // raw inner cursor
	Refused error  // refused by a limit of the caller
	Known   bool   // made from a kept list
	Missing string // why the server's own answer is not there; empty: it is
}

// Prefixed replaces each entry's name by the aggregate's.
func Prefixed(server string, kind Kind, entries []byte) []byte {
	out := append(make([]byte, 0, len(entries)+len(entries)/16+16), '[')
	for entry := range rawjson.Elements(entries) {
		if entry = PrefixedEntry(server, kind, entry); entry != nil {
			out = append(rawjson.AppendComma(out), entry...)
		}
	}
	return append(out, ']')
}

// PrefixedEntry replaces the name of one entry and completes it; nil: it has no name.
func PrefixedEntry(server string, kind Kind, entry []byte) []byte {
	entry = complete(kind, entry)
	member := kind.Name
	if member == "" {
		member = namedBy(entry)
	}
	name, ok := rawjson.GetString(entry, member)
	switch {
	case !ok && kind.Name != "":
		return nil
	case !ok:
	case member == "name" || member == "taskId":
		name = resolve.JoinName(server, name)
	default:
		name = resolve.JoinURI(server, name)
	}
	entry = naming.Server(server).Entry(entry)
	if ok {
		entry = rawjson.Set(entry, rawjson.Edit{Key: member, Value: rawjson.AppendQuote(nil, name)})
	}
	return entry
}

// namedBy returns the member that names an entry of a list that Doorward does not know;
// empty: none.
func namedBy(entry []byte) string {
	for _, member := range []string{"uri", "taskId", "name"} {
		if _, ok := rawjson.GetString(entry, member); ok {
			return member
		}
	}
	return ""
}
