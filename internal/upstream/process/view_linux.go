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

// layers is the list of mounts that make up a server's root, sorted from the root down by order.
type layers []layer

// view lists what one server sees of the file system, as layers of the root that is built for it. It is made by the
// first process of the server's own mount namespace, while the host's root is still there.
//
// Invariant: a path of the host is in the new root only below a layer of a grant, and no layer shows anything of
// Doorward's own except the paths of plan.Own, in whatever way it is reached.
type view struct {
	plan    *plan
	home    string // the path of the server's home, from its environment
	reach   reach
	asks    *patience
	layers  layers
	links   map[string]string // symbolic links in the paths of grants
	covers  []cover
	program []string // paths that the server's program needs, itself included
	scratch []string // writable directories in memory
	devices []grabbed
	absent  []string // paths of the configuration that do not exist
	refused []string // paths that lead out of a writable directory by a link
	astray  []error  // errors for such paths; the server is not started
	hidden  []string // paths that covers hide inside of a grant
	npmrc   string   // the user's settings of npm; public: those without credentials
	public  []byte
	note    func(name, state, detail string) // notes a measure
}

// layer is one mount of the new root.
type layer struct {
	path  string // in the new root, and on the host if fd is set
	kind  int
	write bool
	fd    int // holds the file or directory of the host; -1: none
	dir   bool
}

// Kinds of layers, by rank: of two layers for the same path the later kind is kept.
const (
	scratchLayer  = iota // an empty directory in memory
	homeLayer            // the server's private home
	systemLayer          // what every program needs of the host
	programLayer         // what the server's own program needs
	namedLayer           // the paths that arguments and variables name
	readLayer            // plan.Read
	writeLayer           // plan.Write and plan.Dir
	coverLayer           // empty, in the place of a secret
	pinLayer             // a directory that must not be moved, mounted on itself
	ownCoverLayer        // empty, in the place of a path of Doorward's own
	ownLayer             // plan.Own
)

// explicit reports whether the configuration names the layer's path.
func (l layer) explicit() bool { return l.kind >= namedLayer && l.kind <= writeLayer }

func (l layer) close() {
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
	}
}

// ofHost reports whether the layer shows files of the host.
func (l layer) ofHost() bool { return l.fd >= 0 && l.kind != homeLayer }

// addPaths adds paths of the host.
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

// private lists directories of which the server always has its own.
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

// open opens a path to be granted. A path that leads out of a writable directory is opened only to read, and only if
// every server sees its target anyway.
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

// stray keeps an error for which the server is not started, and reports whether err is one.
func (v *view) stray(err error) bool {
	if !errors.Is(err, errLeadsOut) {
		return false
	}
	if !slices.ContainsFunc(v.astray, func(e error) bool { return e.Error() == err.Error() }) {
		v.astray = append(v.astray, err)
	}
	return true
}

// ofSystem reports whether every server sees a path.
func (all layers) ofSystem(path string) bool {
	return slices.ContainsFunc(all, func(l layer) bool { return l.kind == systemLayer && within(path, l.path) })
}

// follow adds the symbolic links in a path to links.
func (v *view) follow(path string) {
	if w, err := v.reach.walk(path); err == nil {
		maps.Copy(v.links, w.links)
	}
}

// shown reports whether a path of the host is shown, by its own layer or by one above.
func (all layers) shown(path string) bool {
	return slices.ContainsFunc(all, func(l layer) bool { return l.ofHost() && (l.path == path || below(path, l.path)) })
}

// order sorts the layers from the root down and keeps the one of the highest rank for each path. A named path below a
// read-only grant becomes read-only.
func (v *view) order() {
	slices.SortStableFunc(v.layers, func(a, b layer) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(b.kind, a.kind))
	})
	var kept []layer
	for _, l := range v.layers {
		above := deepest(kept, l.path)
		switch {
		case above != nil && above.path == l.path: // it has a lower rank
			l.close()
			continue
		case above != nil && above.ofHost() && !above.write && above.kind != programLayer && l.kind == namedLayer:
			l.write = false
		}
		kept = append(kept, l)
	}
	v.layers = kept
}

// prune removes the layers whose paths are shown in the same way without them.
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

// deepest returns the layer that shows a path: its own, or the nearest above.
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

// addCovers adds the layers that hide secrets inside of grants, and those that keep them in their place.
func (v *view) addCovers() {
	v.layers = append(v.layers, v.layers.coverLayers(v.covers)...)
	v.order()
	v.layers = slices.DeleteFunc(v.layers, v.buried)
	v.prune()
	for _, l := range v.layers {
		if l.kind == coverLayer || l.kind == ownCoverLayer {
			v.hidden = append(v.hidden, l.path)
		}
	}
}

// coverLayers returns the layers for the covers that apply. What lies in a covered directory needs none, except a path
// of Doorward's own, whose cover also withdraws the grants in it.
func (all layers) coverLayers(covers []cover) []layer {
	for _, c := range covers {
		covers = append(covers, all.sockets(c)...)
	}
	covers = slices.DeleteFunc(covers, func(c cover) bool { return !all.needs(c) })
	var made []layer
	for _, c := range covers {
		in := deepest(all, c.path)
		hidden := slices.ContainsFunc(covers, func(d cover) bool { return below(c.path, d.path) && within(d.path, in.path) })
		if c.own {
			made = append(made, layer{path: c.path, kind: ownCoverLayer, fd: -1, dir: c.dir})
		} else if !hidden {
			made = append(made, layer{path: c.path, kind: coverLayer, fd: -1, dir: c.dir})
		}
		if in.write && !hidden {
			made = append(made, pins(in.path, c.path)...)
		}
	}
	return made
}

// needs reports whether a grant shows what c has to hide. A secret that the configuration names is granted, and an
// engine only if write names it. A regular file that is named is no socket, so it is granted.
func (all layers) needs(c cover) bool {
	in := deepest(all, c.path)
	switch {
	case in == nil || !in.ofHost() || in.kind == ownLayer:
		return false
	case c.own || in.path != c.path:
		return true
	case c.engine:
		return in.kind != writeLayer && !(in.explicit() && isRegular(in.fd))
	}
	return !in.explicit()
}

// pins returns a layer for each directory between a grant and a path that is hidden in it.
func pins(grant, path string) []layer {
	var all []layer
	for dir := filepath.Dir(path); below(dir, grant); dir = filepath.Dir(dir) {
		all = append(all, layer{path: dir, kind: pinLayer, fd: -1, dir: true})
	}
	return all
}

// buried reports whether a layer lies below a cover of Doorward's own paths, and is not in plan.Own.
func (v *view) buried(l layer) bool {
	return l.kind != ownLayer && slices.ContainsFunc(v.layers, func(c layer) bool { return c.kind == ownCoverLayer && below(l.path, c.path) })
}
