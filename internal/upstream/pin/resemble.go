package pin

import (
	"net/url"
	"path"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/trust/lookalike"
)

// resembling returns the reason of the withheld item that a name is, or that a server may
// take it for; "": none. Servers interpret names differently: many ignore case and white
// space, and decode addresses.
func resembling[T any](k Kind, name string, withheld map[string]T, reason func(T) Reason) Reason {
	if w, ok := withheld[k.key(name)]; ok {
		return reason(w)
	}
	for item, w := range withheld {
		if own, ok := strings.CutPrefix(item, k.key("")); ok && k.alike(own, name) {
			return reason(w)
		}
	}
	return ""
}

// alike reports whether a server may take one name of a kind for another.
func (k Kind) alike(a, b string) bool {
	if k.isAddress() {
		return addressForm(a) == addressForm(b)
	}
	return lookalike.Alike(lookalike.Shown(a), lookalike.Shown(b))
}

// addressForm returns equal forms for addresses that a lenient parser may take for one:
// decoded, in lower case, without fragment, empty query, doubled slashes and dot segments.
func addressForm(address string) string {
	address, _, _ = strings.Cut(address, "#")
	if plain, err := url.PathUnescape(address); err == nil {
		address = plain
	}
	address, _ = plaintext.Clean(address)
	scheme, rest, ok := strings.Cut(strings.ToLower(strings.TrimSpace(address)), ":")
	if !ok {
		return scheme
	}
	rest = strings.TrimLeft(rest, "/")
	if scheme == "file" {
		rest = strings.TrimPrefix(rest, "localhost/")
	}
	return scheme + ":" + strings.TrimRight(path.Clean("/"+rest), "/?")
}

// opens reports whether an item was approved and is not withheld.
func (r *record) opens(item string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, approved := r.approved[item]
	return approved && r.open[item] == nil
}

// respells reports whether a name is another spelling of an approved one. An item must be
// used only under the name that was decided and approved.
func (r *record) respells(k Kind, name string) bool {
	r.mu.Lock()
	approved := r.approved // replaced, never changed
	r.mu.Unlock()
	if _, ok := approved[k.key(name)]; ok {
		return false
	}
	forms := lookalike.Shown(name)
	for item := range approved {
		if own, ok := strings.CutPrefix(item, k.key("")); ok && lookalike.Alike(lookalike.Shown(own), forms) {
			return true
		}
	}
	return false
}
