package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// containerUser is the uid that images without a user database use for an unprivileged
// user.
const containerUser = 65532

// image is the program of one platform of the container image.
type image struct {
	target
	binary string
}

// layout collects the blobs of an OCI image layout.
type layout struct{ files []entry }

// add stores a blob and returns its descriptor.
func (l *layout) add(mediaType string, b []byte) v1.Descriptor {
	d := digest.FromBytes(b)
	l.files = append(l.files, entry{path: v1.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded(), mode: 0o644, data: b})
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(b))}
}

func (l *layout) addJSON(mediaType string, v any) (v1.Descriptor, error) {
	b, err := json.Marshal(v)
	return l.add(mediaType, b), err
}

// container writes one OCI archive with an image of each platform.
func (r *release) container(images []image) error {
	l := &layout{}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Annotations: r.labels()}
	for _, i := range images {
		d, err := r.image(l, i)
		if err != nil {
			return fmt.Errorf("container image, %s: %w", i.target, err)
		}
		index.Manifests = append(index.Manifests, d)
	}
	top, err := l.addJSON(v1.MediaTypeImageIndex, index)
	if err != nil {
		return err
	}
	top.Annotations = map[string]string{v1.AnnotationRefName: r.version}
	if err := l.name(top); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := writeTar(&out, l.files, r.when); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, "doorward_"+r.version+"_oci.tar"), out.Bytes(), 0o644)
}

// name writes the files that name the image of a layout.
func (l *layout) name(top v1.Descriptor) error {
	index, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{top}})
	if err != nil {
		return err
	}
	version, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	l.files = append(l.files, entry{path: v1.ImageIndexFile, mode: 0o644, data: index}, entry{path: v1.ImageLayoutFile, mode: 0o644, data: version})
	return err
}

func (r *release) labels() map[string]string {
	return map[string]string{v1.AnnotationTitle: "Doorward", v1.AnnotationVersion: r.version, v1.AnnotationLicenses: "Apache-2.0",
		v1.AnnotationSource: "https://github.com/doorward/doorward"}
}

// image adds the layer, configuration and manifest of one platform.
func (r *release) image(l *layout, i image) (v1.Descriptor, error) {
	var plain, packed bytes.Buffer
	files, err := imageFiles(i.binary)
	if err != nil {
		return v1.Descriptor{}, err
	}
	if err := writeTar(&plain, files, r.when); err != nil {
		return v1.Descriptor{}, err
	}
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain.Bytes()); err != nil {
		return v1.Descriptor{}, err
	}
	if err := z.Close(); err != nil {
		return v1.Descriptor{}, err
	}
	layer := l.add(v1.MediaTypeImageLayerGzip, packed.Bytes())
	platform := v1.Platform{OS: i.os, Architecture: i.arch}
	config, err := l.addJSON(v1.MediaTypeImageConfig, v1.Image{Created: &r.when, Platform: platform, Config: r.settings(),
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain.Bytes())}}})
	if err != nil {
		return v1.Descriptor{}, err
	}
	d, err := l.addJSON(v1.MediaTypeImageManifest, v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: config, Layers: []v1.Descriptor{layer}, Annotations: r.labels()})
	d.Platform = &platform
	return d, err
}

// settings makes the daemon read /etc/doorward/doorward.yaml if it exists.
func (r *release) settings() v1.ImageConfig {
	return v1.ImageConfig{
		User: fmt.Sprintf("%d:%[1]d", containerUser), Entrypoint: []string{"/usr/bin/doorward"}, Cmd: []string{"serve"},
		Env: []string{"PATH=/usr/bin", "HOME=/var/lib/doorward", "XDG_CONFIG_HOME=/etc", "DOORWARD_STATE_DIR=/var/lib/doorward",
			"DOORWARD_RUNTIME_DIR=/run/doorward"},
		Volumes: map[string]struct{}{"/var/lib/doorward": {}}, WorkingDir: "/var/lib/doorward", StopSignal: "SIGTERM", Labels: r.labels(),
	}
}

func imageFiles(binary string) ([]entry, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	accounts := fmt.Sprintf("doorward:x:%d:%[1]d:Doorward:/var/lib/doorward:/nonexistent\n", containerUser)
	groups := fmt.Sprintf("doorward:x:%d:\n", containerUser)
	return []entry{
		{path: "usr/bin/doorward", mode: 0o755, data: program},
		{path: "etc/passwd", mode: 0o644, data: []byte(accounts)},
		{path: "etc/group", mode: 0o644, data: []byte(groups)},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
		{path: "run/doorward", mode: os.ModeDir | 0o700, uid: containerUser},
		{path: "var/lib/doorward", mode: os.ModeDir | 0o700, uid: containerUser},
		{path: "tmp", mode: os.ModeDir | os.ModeSticky | 0o777},
	}, nil
}

// authorities returns Mozilla's roots as maintained by the Go project, without those that
// are valid only for some names or times, which a file cannot express.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return out.Bytes()
}
