package secret

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the kind of place that a reference names.
type Kind uint8

// The kinds of a reference.
const (
	Env     Kind = iota + 1 // ${env:NAME}, ${NAME}, ${NAME:-default}
	File                    // ${file:/path}
	Keyring                 // ${keyring:service/name}
)

// Ref is one reference of a Template. Name is a variable, a path, or service/name. It is
// the place of a secret and not secret itself.
type Ref struct {
	Kind Kind
	Name string
}

// Errors of Parse. None of them repeats any part of the text, which may be secret.
var (
	ErrUnclosed = errors.New("a reference that begins with ${ has no closing brace; write $${ for a plain ${")
	ErrNested   = errors.New("a reference contains another reference; use only one")
	ErrName     = errors.New("the name of a variable in ${…} has a character other than letters, digits and underscore, or begins with a digit; correct or rename it")
	ErrKind     = errors.New("unknown kind of reference; use ${env:NAME}, ${file:/path}, ${keyring:service/name}, ${NAME} or ${NAME:-default}")
	ErrPrompt   = errors.New("${input:…} is a prompt of an editor and has no value here; use ${env:NAME}, ${file:/path} or ${keyring:service/name}")
	ErrPath     = errors.New("the path in ${file:…} is not absolute; begin it with /")
	ErrEntry    = errors.New("${keyring:…} needs service/name, such as ${keyring:github/token}")
)

// Template is a text with references in it. Its fixed parts may be secret too, so it prints
// as a Value does, and keeps its parts behind a pointer for the same reason.
type Template struct {
	parts *[]part
}

// part is fixed text when ref.Kind is zero, otherwise a reference.
type part struct {
	text     string // fixed text, or the default of a variable
	ref      Ref
	fallback bool // the variable has a default
}

// Parse parses a text with references. $${ means a literal ${; any other $ is literal.
func Parse(s string) (Template, error) {
	var parts []part
	var fixed strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			break
		}
		if i > 0 && s[i-1] == '$' {
			fixed.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return Template{}, ErrUnclosed
		}
		p, err := parseReference(s[i+2 : i+end])
		if err != nil {
			return Template{}, err
		}
		fixed.WriteString(s[:i])
		parts = append(parts, part{text: fixed.String()}, p)
		fixed.Reset()
		s = s[i+end+1:]
	}
	parts = append(parts, part{text: fixed.String() + s})
	return Template{&parts}, nil
}

// all returns the parts; none for the zero Template.
func (t Template) all() []part {
	if t.parts == nil {
		return nil
	}
	return *t.parts
}

// parseReference parses the text between ${ and }.
func parseReference(s string) (part, error) {
	if strings.Contains(s, "${") {
		return part{}, ErrNested
	}
	name, text, fallback := strings.Cut(s, ":-")
	kind, rest, hasKind := strings.Cut(s, ":")
	switch {
	case !hasKind || !strings.Contains(name, ":"):
		return variable(name, text, fallback)
	case kind == "env":
		return variable(strings.TrimPrefix(name, "env:"), text, fallback)
	case kind == "file":
		if !isAbs(rest) {
			return part{}, ErrPath
		}
		return part{ref: Ref{File, rest}}, nil
	case kind == "keyring":
		if service, entry, ok := strings.Cut(rest, "/"); !ok || service == "" || entry == "" {
			return part{}, ErrEntry
		}
		return part{ref: Ref{Keyring, rest}}, nil
	case kind == "input":
		return part{}, ErrPrompt
	}
	return part{}, ErrKind
}

// variable returns the part for a variable and its default.
func variable(name, text string, fallback bool) (part, error) {
	if !isName(name) {
		return part{}, ErrName
	}
	return part{text: text, ref: Ref{Env, name}, fallback: fallback}, nil
}

// isName reports whether s matches [A-Za-z_][A-Za-z0-9_]*.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// Refs returns the references in their order.
func (t Template) Refs() []Ref {
	var refs []Ref
	for _, p := range t.all() {
		if p.ref.Kind != 0 {
			refs = append(refs, p.ref)
		}
	}
	return refs
}

// Sources holds the functions that look references up.
type Sources struct {
	Env     func(name string) (value string, ok bool) // nil: every variable is unset
	File    func(path string) (Value, error)          // nil: ReadFile
	Keyring func(service, name string) (Value, error) // nil: ReadKeyring with Env
}

// UnsetError is the error for a variable that is not set and has no default.
type UnsetError struct{ Name string }

// Error returns a text with the name of the variable.
func (e *UnsetError) Error() string {
	return fmt.Sprintf("environment variable %s is not set", e.Name)
}

// Resolve returns the text with every reference replaced. As in a shell, the default of
// ${NAME:-default} applies when the variable is unset or empty, and without a default an
// empty variable is the empty text. All errors are returned, joined by errors.Join.
func (t Template) Resolve(src Sources) (Value, error) {
	var b strings.Builder
	var errs []error
	for _, p := range t.all() {
		text, err := p.resolve(src)
		if err != nil {
			errs = append(errs, err)
		}
		b.WriteString(text)
	}
	if len(errs) > 0 {
		return Value{}, errors.Join(errs...)
	}
	return New(b.String()), nil
}

// resolve returns the text of one part.
func (p part) resolve(src Sources) (string, error) {
	switch p.ref.Kind {
	case Env:
		return p.resolveEnv(src.Env)
	case File:
		if src.File == nil {
			src.File = ReadFile
		}
		v, err := src.File(p.ref.Name)
		return v.Reveal(), err
	case Keyring:
		service, name, _ := strings.Cut(p.ref.Name, "/")
		if src.Keyring == nil {
			v, err := ReadKeyring(src.Env, service, name)
			return v.Reveal(), err
		}
		v, err := src.Keyring(service, name)
		return v.Reveal(), err
	}
	return p.text, nil
}

// resolveEnv looks up a variable.
func (p part) resolveEnv(env func(string) (string, bool)) (string, error) {
	var value string
	var ok bool
	if env != nil {
		value, ok = env(p.ref.Name)
	}
	switch {
	case p.fallback && value == "":
		return p.text, nil
	case !ok:
		return "", &UnsetError{Name: p.ref.Name}
	}
	return value, nil
}

// String returns [secret], since fixed text may be secret.
func (Template) String() string { return hidden }

// GoString returns [secret].
func (Template) GoString() string { return hidden }

// Format returns [secret] for every verb.
func (Template) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(hidden)) }
