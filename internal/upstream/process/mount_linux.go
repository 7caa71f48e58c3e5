package process

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// build makes the new root and enters it.
func (v *view) build() error {
	if v.plan.Nested && len(v.hidden) > 0 {
		return fmt.Errorf("nested_sandbox cannot be combined with a grant that contains a path that must stay hidden: %s; "+
			"grant directories beside that path, or remove nested_sandbox%s", strings.Join(v.hidden, " "), remedyOf(v.covers, v.hidden))
	}
	r, err := newRoot()
	if err != nil {
		return err
	}
	if err := v.mountSystem(r); err != nil {
		return err
	}
	for _, l := range v.layers {
		v.asks.ask(l.path)
		if err := v.lay(r, l); err != nil {
			return err
		}
		l.close()
	}
	for path, target := range v.links {
		if !v.layers.shown(path) {
			_ = r.link(path, target) // the server has its own file there
		}
	}
	return r.enter()
}

// remedyOf returns what an error about hidden paths adds if some of these are sockets, or directories of sockets.
func remedyOf(covers []cover, hidden []string) string {
	var paths []string
	for _, c := range covers {
		if c.engine && slices.Contains(hidden, c.path) {
			paths = append(paths, c.path)
		}
	}
	if len(paths) == 0 {
		return ""
	}
	slices.Sort(paths)
	return fmt.Sprintf("; write: [%s] grants sockets, through which the server can then act outside of its sandbox", strings.Join(slices.Compact(paths), ", "))
}

// lay mounts one layer.
func (v *view) lay(r *root, l layer) error {
	in := deepest(v.layers.above(l), l.path)
	create := in == nil || !in.ofHost() && in.kind != pinLayer
	switch l.kind {
	case scratchLayer:
		v.scratch = append(v.scratch, l.path)
		return r.mount("tmpfs", l.path, unix.MS_NODEV, scratchSize(v.plan.Limits.Memory), create, false)
	case pinLayer:
		return unlessGone(r.pin(l.path))
	case coverLayer:
		return unlessGone(v.cover(r, l, create))
	case ownCoverLayer:
		return v.cover(r, l, create)
	}
	if err := r.bind(l.fd, l.path, l.dir, create, l.write); err != nil {
		return err
	}
	if npmrc := filepath.Join(l.path, ".npmrc"); l.kind == homeLayer && len(v.public) > 0 && v.links[npmrc] == "" && !v.layers.has(npmrc) { // not granted, by a link either
		return r.text(npmrc, v.public, true)
	}
	return nil
}

// has reports whether a path has a layer of its own.
func (all layers) has(path string) bool {
	return slices.ContainsFunc(all, func(l layer) bool { return l.path == path })
}

// above returns the layers in front of l.
func (all layers) above(l layer) layers {
	return all[:slices.IndexFunc(all, func(x layer) bool { return x.path == l.path })]
}

// unlessGone returns nil for a path that no longer exists, such as a socket whose program has ended since it was found.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// cover hides a path: a directory becomes an empty one, the settings of npm those without credentials, anything else
// the null device.
func (v *view) cover(r *root, l layer, create bool) error {
	switch {
	case l.dir:
		return r.mount("tmpfs", l.path, unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,size=64k", create, true)
	case l.kind == coverLayer:
		if public := v.publicOf(l.path); len(public) > 0 {
			return r.text(l.path, public, create)
		}
	}
	return r.bind(v.devices[slices.IndexFunc(v.devices, isNull)].fd, l.path, false, create, false)
}

// publicOf returns what a server may read of a hidden file: of npm's settings those without credentials, of any other
// file nothing.
func (v *view) publicOf(path string) []byte {
	switch {
	case sameFile(path, resolved(v.npmrc)):
		return v.public
	case filepath.Base(path) == "npmrc":
		return publicSettings(path)
	}
	return nil
}

func isNull(d grabbed) bool { return d.path == null }

// scratchSize limits files in memory to the server's memory limit. Without one, the kernel allows half of the
// machine's memory.
func scratchSize(memory int64) string {
	if memory <= 0 {
		return "mode=1777"
	}
	return fmt.Sprintf("mode=1777,size=%d", memory)
}
