package config

import (
	"os"
	"reflect"

	"github.com/doorward/doorward/internal/base/secret"
)

// Options holds the functions of Load for everything outside the file. Config does not dial, resolve or
// start anything itself.
type Options struct {
	// Env looks up an environment variable. nil: every variable is unset.
	Env func(name string) (value string, ok bool)
	// CheckURL checks a server's resolved address; its error is shown, so it must not repeat the address.
	// nil: only the scheme is checked.
	CheckURL func(raw string, allowPrivate bool) error
	// ResolveCommand returns the absolute path of a command, which contains a slash only if it is already
	// absolute. pathEnv is the PATH of the child. nil: Server.Path remains empty.
	ResolveCommand func(command, pathEnv string) (string, error)
	// Open opens the configuration and the policy file to read. nil: os.Open.
	Open func(path string) (*os.File, error)
	// Vet checks the content of the configuration file before it is parsed. nil: every content is accepted.
	Vet func(content []byte) error
	// File and Keyring fetch ${file:} and ${keyring:} references. nil: those of package secret.
	File    func(path string) (secret.Value, error)
	Keyring func(service, name string) (secret.Value, error)

	exposed bool // every user of the machine can read the file
}

// source parses the text of a file into nodes.
type source struct{ report *report }

// checker checks the values of a file beyond the tags of the fields.
type checker struct {
	report *report
	dir    string
	o      Options
}

// decoder holds the state of decoding one file. It never stops at a problem.
type decoder struct {
	dir     string
	o       Options
	report  *report
	src     source
	check   checker
	known   map[reflect.Type][]field
	secrets []string // paths of ${file:…} references
	unread  []string // those of secrets that could not be read
}

// fields returns fieldsOf, computed once for each type and file.
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
