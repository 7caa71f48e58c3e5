package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bill writes the bill of materials of a program, from the program's own build information.
func (r *release) bill(t target, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	parts := []cdx.Component{{BOMRef: "go-std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion[len("go"):],
		PackageURL: "pkg:golang/std@" + info.GoVersion[len("go"):]}}
	for _, m := range info.Deps {
		parts = append(parts, component(m))
	}
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{Timestamp: r.when.Format(time.RFC3339), Component: &cdx.Component{
		BOMRef: "doorward", Type: cdx.ComponentTypeApplication, Name: "doorward", Version: r.version, PackageURL: "pkg:golang/" + info.Main.Path + "@v" + r.version,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(program))}},
	}}
	b.Components, b.Dependencies = &parts, &[]cdx.Dependency{{Ref: "doorward", Dependencies: refs(parts)}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, fmt.Sprintf("doorward_%s_%s.cdx.json", r.version, t)), out.Bytes(), 0o644)
}

// component describes a module. The sum is that of go.sum.
func component(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl,
		Properties: &[]cdx.Property{{Name: "go.sum", Value: m.Sum}}}
}

func refs(parts []cdx.Component) *[]string {
	var all []string
	for _, p := range parts {
		all = append(all, p.BOMRef)
	}
	return &all
}
