package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// systemPackages writes the .deb and the .rpm of a Linux target.
func (r *release) systemPackages(t target, binary string, extras []entry) error {
	for _, kind := range []struct {
		name     string
		packager nfpm.Packager
	}{{"deb", deb.Default}, {"rpm", rpm.DefaultRPM}} {
		if err := r.systemPackage(kind.name, kind.packager, t, binary, extras); err != nil {
			return fmt.Errorf("%s, %s: %w", kind.name, t, err)
		}
	}
	return nil
}

func (r *release) systemPackage(kind string, p nfpm.Packager, t target, binary string, extras []entry) error {
	contents, err := r.contents(kind, binary, extras)
	if err != nil {
		return err
	}
	info := r.describe(kind, t)
	info.Contents = contents
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := p.Package(info, &out); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, fmt.Sprintf("doorward_%s_%s.%s", r.version, t, kind)), out.Bytes(), 0o644)
}

func (r *release) describe(kind string, t target) *nfpm.Info {
	info := &nfpm.Info{Name: "doorward", Arch: t.arch, Platform: "linux", Version: r.version, Release: "1", MTime: r.when,
		Section: "net", Priority: "optional", Maintainer: "The Doorward authors <maintainers@users.noreply.github.com>",
		Description: "daemon between AI agents and MCP servers\nIt knows who calls, decides what they may do, carries the call, and\nkeeps a record whose alteration is detected.",
		Homepage:    "https://github.com/doorward/doorward", License: "Apache-2.0", DisableGlobbing: true}
	script := func(name string) string { return filepath.Join(r.root, "packaging", kind, name) }
	info.Scripts = nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")}
	info.Recommends = []string{"ca-certificates"}
	info.RPM = nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons", Summary: "daemon between AI agents and MCP servers"}
	return info
}

// contents lists the files. nfpm reads copies of them from the disk.
func (r *release) contents(kind, binary string, extras []entry) (files.Contents, error) {
	all := files.Contents{{Source: binary, Destination: "/usr/bin/doorward", FileInfo: r.info(0o755)}}
	for _, e := range extras {
		if other := map[string]string{"deb": "/site-functions/", "rpm": "/vendor-completions/"}[kind]; strings.Contains(e.path, other) {
			continue
		}
		source := filepath.Join(r.scratch, "files", e.path)
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(source, e.data, 0o644); err != nil {
			return nil, err
		}
		c := &files.Content{Source: source, Destination: e.path, FileInfo: r.info(e.mode)}
		if e.config {
			c.Type = files.TypeConfigNoReplace
		}
		all = append(all, c)
	}
	return all, nil
}

func (r *release) info(mode os.FileMode) *files.ContentFileInfo {
	return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.when}
}
