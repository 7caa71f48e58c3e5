package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// layers are what a server sees, from the root down once they are in order.
type layers []layer

// view lists what one server sees of the file system, as layers of the root that is built for it. It is made by the first
// process of the server's own mount namespace, while the host's root is still there.
//
// Its invariant: a path of the host is in the new root only below a layer of a grant, and no layer, however it is reached,
// shows anything of Doorward's own but what plan.Own names.
type view struct {
	plan    *plan
	home    string // where the server's home is: its environment says so
	reach   reach
	layers  layers
	links   map[string]string // symbolic links on the way to what is granted
	covers  []cover
	program []string // what the server's program needs with itself
	scratch []string // directories of its own that it may write, in memory
	devices []grabbed
	absent  []string // what the configuration names and the host has not
	refused []string // lists name it, and a link that a server can have made leads elsewhere
	astray  []error  // the same for what the configuration names by itself: the server is not started
	hidden  []string // what covers hide inside of a grant
	npmrc   []byte
	note    func(name, state, detail string) // of measures
}

// layer is one mount of the new root.
type layer struct {
	path  string // in the new root, and on the host where fd is set
	kind  int
	write bool
	fd    int // holds what is shown; -1: nothing of the host is
	dir   bool
}

// Kinds of layers, by their rank: of two for the same path the later one stands.
const (
	scratchLayer  = iota // an empty directory in memory
	homeLayer            // the server's private home
	systemLayer          // what every program needs of the host
	programLayer         // what the server's own program needs
	namedLayer           // what arguments and variables name
	readLayer            // plan.Read
	writeLayer           // plan.Write and plan.Dir
	coverLayer           // nothing, in the place of a secret
	pinLayer             // a directory that must not be moved, mounted on itself
	ownCoverLayer        // nothing, in the place of something of Doorward's
	ownLayer             // plan.Own
)

// explicit tells whether the configuration names this very layer.
func (l layer) explicit() bool { return l.kind >= namedLayer && l.kind <= writeLayer }

func (l layer) close() {
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
	}
}

// ofHost tells whether what lies below the layer is the host's.
func (l layer) ofHost() bool { return l.fd >= 0 && l.kind != homeLayer }

// addPaths adds what stands at paths of the host.
func (v *view) addPaths(kind int, write bool, paths ...string) {
	for _, path := range paths {
		err := v.addPath(kind, write, path)
		if err == nil || kind < namedLayer {
			continue
		}
		if !v.stray(err) {
			v.absent = append(v.absent, path)
		}
	}
}

// private are directories of which the server always has its own.
var private = []string{"/proc", "/sys", "/dev"}

func (v *view) addPath(kind int, write bool, path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) == "/" {
		return unix.EINVAL
	}
	path = filepath.Clean(path)
	held, err := v.open(path, write)
	if err != nil {
		return err
	}
	if held.path == "/" || slices.Contains(private, held.path) || below(held.path, "/proc") || below(held.path, "/sys") {
		_ = unix.Close(held.fd)
		return nil
	}
	v.layers = append(v.layers, layer{path: held.path, kind: kind, write: write, fd: held.fd, dir: held.dir})
	return nil
}

// open opens a path to be granted. One that leads out of what servers write is opened where every server sees it anyway, and
// to read.
func (v *view) open(path string, write bool) (grabbed, error) {
	held, w, err := v.reach.grab(path)
	if errors.Is(err, errLeadsOut) {
		if write || !v.layers.ofSystem(w.at) {
			v.refuse(path)
			return grabbed{}, fmt.Errorf("%s: %w", path, err)
		}
		held, err = grab(w.at)
	}
	if err == nil {
		maps.Copy(v.links, w.links)
	}
	return held, err
}

func (v *view) refuse(path string) {
	if !slices.Contains(v.refused, path) {
		v.refused = append(v.refused, path)
	}
}

// stray keeps an error for which the server is not started, and reports whether it is one.
func (v *view) stray(err error) bool {
	if !errors.Is(err, errLeadsOut) {
		return false
	}
	if !slices.ContainsFunc(v.astray, func(e error) bool { return e.Error() == err.Error() }) {
		v.astray = append(v.astray, err)
	}
	return true
}

// ofSystem tells whether every server sees a path.
func (all layers) ofSystem(path string) bool {
	return slices.ContainsFunc(all, func(l layer) bool { return l.kind == systemLayer && within(path, l.path) })
}

// follow remembers the symbolic links on the way to a path.
func (v *view) follow(path string) {
	if w, err := v.reach.walk(path); err == nil {
		maps.Copy(v.links, w.links)
	}
}

// shown tells whether a path of the host is shown, by its own layer or by one above.
func (all layers) shown(path string) bool {
	return slices.ContainsFunc(all, func(l layer) bool { return l.ofHost() && (l.path == path || below(path, l.path)) })
}

// order sorts the layers from the root down and keeps one for each path. Reading wins over what a server merely names.
func (v *view) order() {
	slices.SortStableFunc(v.layers, func(a, b layer) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(b.kind, a.kind))
	})
	var kept []layer
	for _, l := range v.layers {
		above := deepest(kept, l.path)
		switch {
		case above != nil && above.path == l.path: // of a lower rank
			l.close()
			continue
		case above != nil && above.ofHost() && !above.write && above.kind != programLayer && l.kind == namedLayer:
			l.write = false
		}
		kept = append(kept, l)
	}
	v.layers = kept
}

// prune leaves out the layers whose paths are shown in the same way without them.
func (v *view) prune() {
	var kept []layer
	for _, l := range v.layers {
		above := deepest(kept, l.path)
		if above != nil && above.ofHost() && l.kind <= writeLayer && (above.write == l.write || above.write && l.kind < readLayer) {
			l.close()
			continue
		}
		kept = append(kept, l)
	}
	v.layers = kept
}

// deepest is the layer that a path is in: its own, or the nearest above.
func deepest(layers []layer, path string) *layer {
	var found *layer
	for i := range layers {
		l := &layers[i]
		if (l.path == path || below(path, l.path)) && (found == nil || len(l.path) >= len(found.path)) {
			found = l
		}
	}
	return found
}

// addCovers adds what hides secrets inside of what is granted, and what keeps them in their place.
func (v *view) addCovers() {
	var all []layer
	for _, c := range v.covers {
		in := deepest(v.layers, c.path)
		if in == nil || !in.ofHost() || in.kind == ownLayer || !c.own && in.path == c.path && in.explicit() {
			continue
		}
		kind := coverLayer
		if c.own {
			kind = ownCoverLayer
		}
		all = append(all, layer{path: c.path, kind: kind, fd: -1, dir: c.dir})
		if in.write {
			all = append(all, pins(in.path, c.path)...)
		}
	}
	v.layers = append(v.layers, all...)
	v.order()
	v.layers = slices.DeleteFunc(v.layers, v.buried)
	v.prune()
	for _, l := range v.layers {
		if l.kind == coverLayer || l.kind == ownCoverLayer {
			v.hidden = append(v.hidden, l.path)
		}
	}
}

// pins are the directories between a grant and what is hidden in it.
func pins(grant, path string) []layer {
	var all []layer
	for dir := filepath.Dir(path); below(dir, grant); dir = filepath.Dir(dir) {
		all = append(all, layer{path: dir, kind: pinLayer, fd: -1, dir: true})
	}
	return all
}

// buried tells whether a layer lies below a cover of Doorward's own, and is not of what this server is to have of it.
func (v *view) buried(l layer) bool {
	return l.kind != ownLayer && slices.ContainsFunc(v.layers, func(c layer) bool { return c.kind == ownCoverLayer && below(l.path, c.path) })
}
