package config

import (
	"path/filepath"
	"reflect"
	"slices"
)

// granted is the list of keys whose paths are given to a server or launcher. All other paths of a
// configuration are Doorward's own.
var granted = []string{"cwd", "read", "write", "roots"}

// Files returns the paths that the configuration makes Doorward's own, absolute: the file itself, the
// policy and its tests, certificates, documents, and the files of ${file:…} references. Servers must not
// change them, and may read only those that their own entry names.
func (c *Config) Files() []string {
	d := &decoder{known: map[reflect.Type][]field{}}
	all := append(d.filesIn(reflect.ValueOf(c).Elem()), c.File)
	if c.Policy != "" {
		all = append(all, PolicyTestsFile(c.Policy))
	}
	all = append(all, c.Secrets...)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(path string) bool { return !filepath.IsAbs(path) })
}

// filesIn returns the paths below a section.
func (d *decoder) filesIn(v reflect.Value) []string {
	var all []string
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			all = d.filesIn(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, d.filesIn(v.Index(i))...)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			all = append(all, d.filesIn(v.MapIndex(key))...)
		}
	case reflect.Struct:
		if v.Type().PkgPath() != reflect.TypeFor[Config]().PkgPath() {
			return nil
		}
		for _, f := range d.fields(v.Type()) {
			if fv := v.Field(f.index); f.path && fv.Kind() == reflect.String && !slices.Contains(granted, f.key) {
				all = append(all, fv.String())
			} else if !f.path {
				all = append(all, d.filesIn(fv)...)
			}
		}
	}
	return all
}
