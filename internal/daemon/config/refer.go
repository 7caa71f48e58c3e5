package config

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/doorward/doorward/internal/base/secret"
)

// ownVariables lists the variables with Doorward's own credentials. No server gets one, whatever the file
// says.
var ownVariables = []string{"DOORWARD_TOKEN", "DOORWARD_SESSION"}

// resolve fetches the references of a text. Nothing is fetched for a disabled server.
func (d *decoder) resolve(text, key string, f field) secret.Value {
	t, err := secret.Parse(text)
	if err != nil {
		d.report.refuse(key, err.Error())
		return secret.Value{}
	}
	if d.report.muted || !d.mayRefer(key, f, t) {
		return secret.Value{}
	}
	for _, r := range t.Refs() {
		if r.Kind == secret.File {
			d.secrets = append(d.secrets, r.Name)
		}
	}
	v, err := t.Resolve(secret.Sources{Env: d.o.Env, File: d.file, Keyring: d.o.Keyring})
	said := map[string]bool{}
	for _, err := range split(err) {
		if text := err.Error() + advice(err); !said[text] {
			d.report.refuse(key, text)
			said[text] = true
		}
	}
	d.warnVisible(key, f, t)
	if d.o.exposed && len(t.Refs()) == 0 && isSecret(key, text) {
		d.report.warn(key, "every user of the machine can read this file and so the secret; run chmod o= on it, or write ${file:/path} of a private file")
	}
	d.report.warnUnbraced(key, text)
	return v
}

// file reads the file of a reference.
func (d *decoder) file(path string) (secret.Value, error) {
	read := d.o.File
	if read == nil {
		read = secret.ReadFile
	}
	v, err := read(path)
	if err != nil {
		d.unread = append(d.unread, path)
	}
	return v, err
}

// mayRefer checks the references of a text before any is fetched.
func (d *decoder) mayRefer(key string, f field, t secret.Template) bool {
	for _, r := range t.Refs() {
		switch {
		case f.refs == "env" && r.Kind != secret.Env:
			d.report.refuse(key, "${file:…} and ${keyring:…} are not expanded here, where others can see the value; use them in env or headers")
		case r.Kind == secret.Env && slices.Contains(ownVariables, r.Name):
			d.report.refuse(key, r.Name+" is Doorward's own and is never passed on; give this its own credential")
		default:
			continue
		}
		return false
	}
	return true
}

// secretName matches the name of a variable that probably contains a secret.
var secretName = lazily(`(?i)token|secret|passw|api_?key|credential`)

// warnVisible warns of a probable secret in a value that others can see.
func (d *decoder) warnVisible(key string, f field, t secret.Template) {
	where := map[string]string{
		"args":    "every user of the machine can see arguments; pass it in env",
		"command": "every user of the machine can see commands; pass it in env",
		"url":     "addresses end up in other people's logs; send it in headers",
	}[f.key]
	for _, r := range t.Refs() {
		if where != "" && secretName.MatchString(r.Name) {
			d.report.warn(key, fmt.Sprintf("%s looks like a secret, and %s", r.Name, where))
		}
	}
}

// editorVariables lists the variables that only an editor expands.
var editorVariables = []string{"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"}

// advice returns the remedy for an error of a reference, if the error does not contain it.
func advice(err error) string {
	unset, ok := errors.AsType[*secret.UnsetError](err)
	switch {
	case !ok && errors.Is(err, fs.ErrNotExist):
		return "; make the file, readable by you alone, or correct the path"
	case !ok:
		return ""
	case slices.Contains(editorVariables, unset.Name):
		return "; only an editor fills it in, so write the path itself"
	}
	return fmt.Sprintf("; set it where the daemon starts, or give a default with ${%s:-default}", unset.Name)
}

// split returns the parts of a joined error.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
