package library

import (
	"cmp"
	"slices"

	"github.com/doorward/doorward/internal/instructions/document"
)

// held gives access to the documents in memory. Its methods take mu, except inMemory.
type held struct{ l *Library }

// has reports whether a document is in memory.
func (h held) has(e edition) bool { return h.document(e) != nil }

// document returns a document that is in memory, or nil.
func (h held) document(e edition) *document.Document {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.inMemory(e)
}

// inMemory is document for a caller that holds mu.
func (h held) inMemory(e edition) *document.Document {
	return cmp.Or(h.l.docs[e], h.l.hereDocs[e])
}

func (h held) isDamaged(e edition) bool {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	_, damaged := h.l.damaged[e]
	return damaged
}

// isPresent reports whether the directory had a file for a key at the last look.
func (h held) isPresent(k key) bool {
	return slices.Contains(h.presentKeys(k.name), k)
}

// presentKeys returns the keys of a name that have a file, sorted. Before the first look
// these are the ones that an earlier process found.
func (h held) presentKeys(name string) (out []key) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	for k := range h.l.here {
		if k.name == name {
			out = append(out, k)
		}
	}
	for k := range h.l.seen {
		if h.l.here == nil && k.name == name {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, key.compare)
	return out
}

// current returns the version that the directory holds of a key; empty when its file
// cannot be used.
func (h held) current(k key) string {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	if h.l.here == nil {
		return h.l.seen[k]
	}
	if d := h.l.here[k].doc; d != nil {
		return d.Version
	}
	return ""
}
