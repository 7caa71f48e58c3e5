// Command packages makes the release files of Doorward: packages for Debian and Red Hat
// systems, tarballs, a container image, bills of materials and the checksums of all of
// them.
//
// Invariant: the same commit, version and Go toolchain give the same bytes. All times are
// the commit's, names are sorted, and only the source and the module cache are read from
// the machine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// release holds the settings of one run.
type release struct {
	root    string // the source tree
	dist    string // output directory
	scratch string // removed at the end
	version string // in the form of nfpm: 1.2.3 or 1.2.3-pre
	when    time.Time
}

// target is a system and architecture to build for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "_" + t.arch }

func main() {
	root := flag.String("root", ".", "the source tree")
	dist := flag.String("dist", "dist", "where the files go")
	version := flag.String("version", "", "the version; empty asks git")
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "systems to build for")
	flag.Parse()
	if err := run(*root, *dist, *version, *targets); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func run(root, dist, version, targets string) error {
	r, err := newRelease(root, dist, version)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.scratch)
	wanted, err := parseTargets(targets)
	if err != nil {
		return err
	}
	if err := r.clear(); err != nil {
		return err
	}
	extras, err := r.extras()
	if err != nil {
		return err
	}
	if err := r.write(wanted, extras); err != nil {
		return err
	}
	return r.sums()
}

func newRelease(root, dist, version string) (*release, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if dist, err = filepath.Abs(dist); err != nil {
		return nil, err
	}
	when, err := commitTime(root)
	if err != nil {
		return nil, err
	}
	if version == "" {
		if version, err = gitVersion(root, when); err != nil {
			return nil, err
		}
	}
	scratch, err := os.MkdirTemp("", "doorward-packages")
	return &release{root: root, dist: dist, scratch: scratch, version: strings.TrimPrefix(version, "v"), when: when}, err
}

func parseTargets(text string) ([]target, error) {
	var all []target
	for name := range strings.SplitSeq(text, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok || !slices.Contains([]string{"linux", "darwin", "windows"}, system) {
			return nil, fmt.Errorf("target %q: write linux/ARCH, darwin/ARCH or windows/ARCH", name)
		}
		all = append(all, target{system, arch})
	}
	return all, nil
}

// clear removes the files of an earlier run only.
func (r *release) clear() error {
	if err := os.MkdirAll(r.dist, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(r.dist, "doorward_*"))
	if err != nil {
		return err
	}
	for _, path := range append(old, filepath.Join(r.dist, "SHA256SUMS")) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// write makes the files of all targets.
func (r *release) write(wanted []target, extras []entry) error {
	var images []image
	for _, t := range wanted {
		binary, err := r.build(t)
		if err != nil {
			return err
		}
		if err := r.bill(t, binary); err != nil {
			return fmt.Errorf("bill of materials, %s: %w", t, err)
		}
		if err := r.archive(t, binary, extras); err != nil {
			return fmt.Errorf("archive, %s: %w", t, err)
		}
		if t.os != "linux" {
			continue
		}
		if err := r.systemPackages(t, binary, extras); err != nil {
			return err
		}
		images = append(images, image{t, binary})
	}
	if len(images) == 0 {
		return nil
	}
	return r.container(images)
}
