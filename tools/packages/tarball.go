package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// writeTar writes files sorted by name, each after its directories.
func writeTar(w io.Writer, files []entry, when time.Time) error {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	t, made := tar.NewWriter(w), map[string]bool{}
	for _, f := range files {
		if err := writeParents(t, f.path, when, made); err != nil {
			return err
		}
		h := &tar.Header{Name: f.path, Typeflag: tar.TypeReg, Mode: int64(f.mode.Perm()) | sticky(f.mode), Size: int64(len(f.data)),
			Uid: f.uid, Gid: f.uid, ModTime: when, Format: tar.FormatUSTAR}
		if f.mode.IsDir() {
			h.Name, h.Typeflag, made[f.path] = f.path+"/", tar.TypeDir, true
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

func sticky(mode os.FileMode) int64 {
	if mode&os.ModeSticky != 0 {
		return 0o1000
	}
	return 0
}

func writeParents(t *tar.Writer, name string, when time.Time, made map[string]bool) error {
	dir := path.Dir(name)
	if dir == "." || dir == "/" || made[dir] {
		return nil
	}
	if err := writeParents(t, dir, when, made); err != nil {
		return err
	}
	made[dir] = true
	return t.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: when, Format: tar.FormatUSTAR})
}

// tree returns the program and its other files in one directory, so that its content can be
// copied over a prefix such as /usr/local.
func (r *release) tree(t target, binary string, extras []entry) ([]entry, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	top := "doorward-" + r.version + "/"
	if t.os == "windows" {
		return []entry{{path: top + "doorward.exe", mode: 0o755, data: program}}, nil
	}
	files := []entry{{path: top + "bin/doorward", mode: 0o755, data: program}}
	for _, e := range extras {
		if rest, ok := strings.CutPrefix(e.path, "/usr/share/"); ok && (t.os == "linux" || !strings.Contains(rest, "vendor-completions")) {
			files = append(files, entry{path: top + "share/" + rest, mode: e.mode, data: e.data})
		}
		if rest, ok := strings.CutPrefix(e.path, "/usr/lib/systemd/user/"); ok && t.os == "linux" {
			files = append(files, entry{path: top + "share/systemd/user/" + rest, mode: e.mode, data: e.data})
		}
	}
	return files, nil
}

// archive writes the tree of a target: a zip file for Windows, else a tarball.
func (r *release) archive(t target, binary string, extras []entry) error {
	files, err := r.tree(t, binary, extras)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	suffix, write := "tar.gz", writeTarball
	if t.os == "windows" {
		suffix, write = "zip", writeZip
	}
	if err := write(&out, files, r.when); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, fmt.Sprintf("doorward_%s_%s.%s", r.version, t, suffix)), out.Bytes(), 0o644)
}

func writeTarball(w io.Writer, files []entry, when time.Time) error {
	z := gzip.NewWriter(w)
	if err := writeTar(z, files, when); err != nil {
		return err
	}
	return z.Close()
}

func writeZip(w io.Writer, files []entry, when time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: when}
		h.SetMode(f.mode)
		e, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := e.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}

// sums writes SHA256SUMS in the format of sha256sum.
func (r *release) sums() error {
	files, err := filepath.Glob(filepath.Join(r.dist, "doorward_*"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	var out strings.Builder
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(b), filepath.Base(path))
	}
	return os.WriteFile(filepath.Join(r.dist, "SHA256SUMS"), []byte(out.String()), 0o644)
}
