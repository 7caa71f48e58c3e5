package pin

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/durable"
)

// Names returns the names of a kind that a server is known to offer, approved or withheld.
// None: the names are not known.
func (b *Book) Names(server string, k Kind) []string {
	r := b.known(server)
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(slices.Sorted(named(k, slices.Concat(slices.Collect(maps.Keys(r.approved)), slices.Collect(maps.Keys(r.open))))))
}

// Approved is Names from the manifest in a directory alone, for use without a daemon.
func Approved(dir, server string, k Kind) ([]string, error) {
	place, err := durable.Pin(filepath.Join(dir, "manifest"))
	if err != nil {
		return nil, fmt.Errorf("finding the manifests: %w", err)
	}
	defer place.Close()
	m, err := readManifest(place, server+".json", server)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(named(k, slices.Collect(maps.Keys(m.items)))), nil
}

// named returns the names of a kind among items.
func named(k Kind, items []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, item := range items {
			if name, ok := strings.CutPrefix(item, k.key("")); ok && !yield(name) {
				return
			}
		}
	}
}
