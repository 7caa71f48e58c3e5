package config

import (
	"os"
	"reflect"

	"github.com/doorward/doorward/internal/base/secret"
)

// Options are what Load needs from outside. Config does not dial, resolve or start anything itself.
type Options struct {
	// Env looks up an environment variable. nil: every variable is unset.
	Env func(name string) (value string, ok bool)
	// CheckURL judges a server's resolved address; its error is shown, so it must not repeat the address. nil: only
	// the scheme is judged.
	CheckURL func(raw string, allowPrivate bool) error
	// ResolveCommand makes an absolute path of a command, which holds a slash only when it is absolute already.
	// pathEnv is the PATH that the child will have. nil: Server.Path stays empty.
	ResolveCommand func(command, pathEnv string) (string, error)
	// Open opens the configuration and the policy file to read. nil: os.Open.
	Open func(path string) (*os.File, error)
	// Vet judges the content of the configuration file, before anything of it is looked at. nil: everything will do.
	Vet func(content []byte) error
	// File and Keyring fetch ${file:} and ${keyring:} references. nil: package secret's own.
	File    func(path string) (secret.Value, error)
	Keyring func(service, name string) (secret.Value, error)
}

// source is the text of a file as nodes.
type source struct{ report *report }

// checker checks the values of a file beyond the form that the fields' tags give.
type checker struct {
	report *report
	dir    string
	o      Options
}

// decoder carries one reading of a file. It never stops at a problem.
type decoder struct {
	dir     string
	o       Options
	report  *report
	src     source
	check   checker
	known   map[reflect.Type][]field
	secrets []string // paths of ${file:…} references
}

// fields is fieldsOf, once for each type in one reading of a file.
func (d *decoder) fields(t reflect.Type) []field {
	if _, ok := d.known[t]; !ok {
		d.known[t] = fieldsOf(t)
	}
	return d.known[t]
}

// keys lists the keys of a struct.
func (d *decoder) keys(t reflect.Type) []string {
	var keys []string
	for _, f := range d.fields(t) {
		keys = append(keys, f.key)
	}
	return keys
}
