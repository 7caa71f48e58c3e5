package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// entry is a file of the packages. The path is relative to the root of the system.
type entry struct {
	path   string
	mode   os.FileMode
	data   []byte
	uid    int  // also the gid
	config bool // kept if the operator changed it
}

// build compiles the program for one target and returns its path. The program contains
// neither the path of the tree nor its state of version control.
func (r *release) build(t target) (string, error) {
	out := filepath.Join(r.scratch, t.String(), "doorward")
	if err := r.supervisor(t); err != nil {
		return "", err
	}
	return out, r.compile(t, "-s -w -buildid= -X main.version="+r.version, out, "./cmd/doorward")
}

// supervisor builds the program of supervisors and puts it where doorward embeds it. An
// identical file is not replaced, because another build may be reading it.
func (r *release) supervisor(t target) error {
	if t.os != "linux" {
		return nil
	}
	const process = "internal/upstream/process/"
	out := filepath.Join(r.scratch, t.String(), "child")
	if err := r.compile(t, "-s -w -buildid=", out, "./"+process+"child"); err != nil {
		return err
	}
	built, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	place := filepath.Join(r.root, process+"image/child_"+t.arch)
	if was, err := os.ReadFile(place); err == nil && bytes.Equal(was, built) {
		return nil
	}
	part := place + ".new"
	if err := os.WriteFile(part, built, 0o755); err != nil {
		return fmt.Errorf("placing the program of supervisors: %w", err)
	}
	return os.Rename(part, place)
}

// compile builds a program. The tag makes the program of supervisors a part of doorward.
func (r *release) compile(t target, flags, out, program string) error {
	c := exec.Command("go", "build", "-tags", "supervisor", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", out, program)
	c.Dir, c.Stderr = r.root, os.Stderr
	c.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")
	if err := c.Run(); err != nil {
		return fmt.Errorf("building %s for %s: %w", program, t, err)
	}
	return nil
}

// extras returns the files beside the program: manual pages and completions, which the
// program writes, units, the configuration and the licence.
func (r *release) extras() ([]entry, error) {
	host, err := r.build(target{runtime.GOOS, runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	pages, err := r.manual(host)
	if err != nil {
		return nil, err
	}
	shells, err := completions(host)
	if err != nil {
		return nil, err
	}
	kept, err := r.sources()
	return slices.Concat(pages, shells, kept), err
}

func (r *release) manual(host string) ([]entry, error) {
	dir := filepath.Join(r.scratch, "man")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	c := exec.Command(host, "man", "--dir", dir)
	c.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.when.Unix(), 10))
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("writing the manual: %w: %s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		packed, err := gzipped(b)
		if err != nil {
			return nil, err
		}
		all = append(all, entry{path: "/usr/share/man/man1/" + filepath.Base(page) + ".gz", mode: 0o644, data: packed})
	}
	return all, nil
}

func completions(host string) ([]entry, error) {
	var all []entry
	for _, s := range [][2]string{
		{"bash", "/usr/share/bash-completion/completions/doorward"},
		{"fish", "/usr/share/fish/vendor_completions.d/doorward.fish"},
		{"zsh", "/usr/share/zsh/vendor-completions/_doorward"},
		{"zsh", "/usr/share/zsh/site-functions/_doorward"},
	} {
		b, err := exec.Command(host, "completion", s[0]).Output()
		if err != nil {
			return nil, fmt.Errorf("writing the completion of %s: %w", s[0], err)
		}
		all = append(all, entry{path: s[1], mode: 0o644, data: b})
	}
	return all, nil
}

// sources returns the files that packages take from the tree unchanged.
func (r *release) sources() ([]entry, error) {
	var all []entry
	for _, s := range []struct {
		from, to string
		config   bool
	}{
		{"packaging/doorward.yaml", "/etc/doorward/doorward.yaml", true},
		{"packaging/sysusers.conf", "/usr/lib/sysusers.d/doorward.conf", false},
		{"packaging/system/doorward.service", "/usr/lib/systemd/system/doorward.service", false},
		{"packaging/system/doorward-servers.service", "/usr/lib/systemd/system/doorward-servers.service", false},
		{"packaging/user/doorward.service", "/usr/lib/systemd/user/doorward.service", false},
		{"packaging/user/doorward.socket", "/usr/lib/systemd/user/doorward.socket", false},
		{"LICENSE", "/usr/share/doc/doorward/copyright", false},
		{"README.md", "/usr/share/doc/doorward/README.md", false},
		{"CHANGELOG.md", "/usr/share/doc/doorward/CHANGELOG.md", false},
	} {
		b, err := os.ReadFile(filepath.Join(r.root, s.from))
		if err != nil {
			return nil, err
		}
		all = append(all, entry{path: s.to, mode: 0o644, data: b, config: s.config})
	}
	return all, nil
}

func gzipped(b []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}

// commitTime returns SOURCE_DATE_EPOCH, or else the time of the last commit.
func commitTime(root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		var err error
		if text, err = git(root, "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is not set and git does not know the last commit: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is no number of seconds: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// gitVersion returns the tag of the commit. Between tags it returns a version that sorts by
// the time of the commit, and before the release.
func gitVersion(root string, when time.Time) (string, error) {
	if tag, err := git(root, "describe", "--tags", "--exact-match", "--match", "v[0-9]*"); err == nil {
		return tag, nil
	}
	commit, err := git(root, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", fmt.Errorf("no --version is given and git does not know the commit: %w", err)
	}
	version := "0.1.0-dev." + when.Format("20060102150405") + ".g" + commit
	if changed, err := git(root, "status", "--porcelain", "--untracked-files=no"); err != nil || changed != "" {
		version += ".dirty"
	}
	return version, nil
}

func git(root string, args ...string) (string, error) {
	c := exec.Command("git", args...)
	c.Dir = root
	b, err := c.Output()
	return strings.TrimSpace(string(b)), err
}
