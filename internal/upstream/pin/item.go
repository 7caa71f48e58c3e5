package pin

import (
	"bytes"
	"crypto/sha256"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/visible"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Kind is one of the lists that a server offers.
type Kind uint8

// The lists, in the order in which they are shown.
const (
	Tools Kind = iota
	Prompts
	Resources
	Templates
	Skills    // SEP-2640
	KindCount // the number of lists
)

var kindWords = [KindCount]struct {
	item, settled, name string
	capability          []string // a path
}{
	Tools:     {"tool", "tools", "name", []string{"tools"}},
	Prompts:   {"prompt", "prompts", "name", []string{"prompts"}},
	Resources: {"resource", "resources", "uri", []string{"resources"}},
	Templates: {"template", "templates", "uriTemplate", []string{"resources"}},
	Skills:    {"skill", "skills", "uri", []string{"extensions", "io.modelcontextprotocol/skills"}},
}

// isAddress reports whether the entries of a kind are named by a URI.
func (k Kind) isAddress() bool { return k == Resources || k == Templates || k == Skills }

// Items that are no entry of a list.
const (
	itemCommand      = "command"
	itemInstructions = "instructions"
)

// key returns the name of an item: the kind and the server's own name for it.
func (k Kind) key(name string) string { return kindWords[k].item + ":" + name }

// Limits of what is offered.
const (
	maxName        = 256       // bytes of a name
	MaxAddress     = 8 << 10   // bytes of a URI
	maxItem        = 512 << 10 // bytes of one definition
	maxTitle       = 1 << 10   // bytes of a title; the rest is cut
	maxDescription = 32 << 10  // bytes of a description; the rest is cut
	maxGreeting    = 64 << 10  // bytes of instructions; the rest is cut
	cutMark        = "…[cut]"
)

type digest [sha256.Size]byte

// digestOf returns equal digests for definitions that differ only in the order of their keys,
// in white space or in how strings are escaped.
func digestOf(canonical []byte) digest { return sha256.Sum256(canonical) }

// canonical returns the pinned part of a definition: all of it except for the present size
// and time of a resource, which change with its content.
func canonical(k Kind, raw []byte) []byte {
	if k == Resources {
		if isNumber(rawjson.Get(raw, "size")) {
			raw = rawjson.Set(raw, rawjson.Edit{Key: "size"})
		}
		if isTime(rawjson.GetPath(raw, "annotations", "lastModified")) {
			raw = rawjson.SetIn(raw, "annotations", rawjson.Edit{Key: "lastModified"})
		}
	}
	return rawjson.Canonical(raw)
}

func isNumber(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// isTime reports whether raw is a text of only the characters of ISO 8601.
func isTime(raw []byte) bool {
	text, ok := wire.Text(raw)
	return ok && text != "" && len(text) <= len("2006-01-02T15:04:05.000000000+00:00") && strings.Trim(text, "0123456789-:.+TZ") == ""
}

// seen is one entry of a list after it was examined.
type seen struct {
	raw     []byte // unchanged
	name    string // the server's own
	shown   string // the name that clients know
	clean   []byte // as clients may see it
	cleaned int    // how many parts were removed or cut
	digest  digest
	refusal string // why it cannot be offered at all; "": it can
}

// look examines one entry.
func look(k Kind, raw []byte) seen {
	s := seen{raw: raw}
	var isText bool
	if s.name, isText = rawjson.GetString(raw, kindWords[k].name); !isText || s.name == "" {
		s.refusal = "it has no name"
		return s
	}
	if len(raw) > maxItem {
		s.refusal, s.shown = "its definition is too large", s.name
		return s
	}
	s.digest = digestOf(canonical(k, raw))
	var hiddenKey bool
	s.clean, s.cleaned, hiddenKey = cleanValue(raw)
	s.shown, _ = rawjson.GetString(s.clean, kindWords[k].name)
	limit, address := maxName, k.isAddress()
	if address {
		limit = MaxAddress
	}
	switch {
	case hiddenKey:
		s.refusal = "a member of its definition has a name with hidden characters"
	case s.shown == "":
		s.refusal = "its name has hidden characters alone"
	case address && s.shown != s.name:
		s.refusal = "its address has hidden characters"
	case len(s.name) > limit:
		s.refusal = "its name is too long"
	}
	return s
}

// cleanValue cleans every string in raw and cuts titles and descriptions. It never changes a
// member's name, because the rest could be another member's name.
func cleanValue(raw []byte) (out []byte, n int, hiddenKey bool) {
	if len(raw) <= maxTitle && plainJSON(raw) {
		return raw, 0, false
	}
	out = rawjson.MapStrings(raw, func(s rawjson.String) ([]byte, bool) {
		text, taken := plaintext.Clean(string(s.Text))
		if s.IsKey {
			hiddenKey = hiddenKey || taken > 0
			return nil, false
		}
		if limit := limitOf(s.Key); limit > 0 && len(text) > limit {
			text = cut(text, limit)
			taken++
		}
		n += taken
		return []byte(text), taken > 0
	})
	return out, n, hiddenKey
}

func limitOf(key []byte) int {
	switch string(key) {
	case "title":
		return maxTitle
	case "description":
		return maxDescription
	}
	return 0
}

func cut(text string, limit int) string {
	return visible.Cut(text, limit-len(cutMark)) + cutMark
}

// plainJSON reports whether raw holds neither a character beyond ASCII nor an escape that
// could be one to be removed.
func plainJSON(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c >= 0x7F:
			return false
		case c == '\\':
			i++
			if i < len(raw) && bytes.IndexByte([]byte(`"\/nt`), raw[i]) < 0 {
				return false
			}
		}
	}
	return true
}

// survey examines every entry of a list.
func survey(k Kind, entries []byte) []seen {
	var out []seen
	for raw := range rawjson.Elements(entries) {
		out = append(out, look(k, raw))
	}
	return out
}
