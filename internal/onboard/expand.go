package onboard

import (
	"path/filepath"
	"regexp"
	"strings"
)

// value converts the references in a client's value to Doorward's.
func (c *conversion) value(text string) string {
	switch c.from.Client.expands {
	case literal:
		return strings.ReplaceAll(text, "${", "$${")
	case curly:
		return c.curly(strings.ReplaceAll(text, "${", "$${"))
	case dollars:
		text = bare(text)
	}
	return c.braces(text)
}

// bare converts $NAME to ${env:NAME}.
func bare(text string) string {
	return regexp.MustCompile(`\$[A-Za-z_][A-Za-z0-9_]*`).ReplaceAllStringFunc(text, func(name string) string {
		return "${env:" + name[1:] + "}"
	})
}

// curly converts {env:NAME} and {file:PATH}.
func (c *conversion) curly(text string) string {
	return regexp.MustCompile(`\{(env|file):([^}]*)\}`).ReplaceAllStringFunc(text, func(ref string) string {
		kind, name, _ := strings.Cut(ref[1:len(ref)-1], ":")
		if kind == "file" {
			name = c.within(name)
		}
		return "${" + kind + ":" + name + "}"
	})
}

// braces converts references that an editor would replace: ${{ secrets.NAME }} and ${NAME}.
func (c *conversion) braces(text string) string {
	text = regexp.MustCompile(`\$\{\{\s*(?:secrets|inputs)\.([A-Za-z0-9_]+)\s*\}\}`).ReplaceAllStringFunc(text, func(ref string) string {
		name := strings.Trim(ref[strings.IndexByte(ref, '.')+1:], " }")
		c.note("%s becomes the environment variable %s of the daemon", ref, name)
		return "${env:" + name + "}"
	})
	return regexp.MustCompile(`\$\{[^{}]*(\}|$)`).ReplaceAllStringFunc(text, func(ref string) string {
		if ref[len(ref)-1] != '}' {
			return "$" + ref // not a reference, so it is escaped for Doorward
		}
		if known, ok := c.editor(ref[2 : len(ref)-1]); ok {
			return known
		}
		return ref
	})
}

// editor returns the value of an editor's variable.
func (c *conversion) editor(name string) (string, bool) {
	if id, ok := strings.CutPrefix(name, "input:"); ok {
		return c.input(id), true
	}
	switch {
	case name == "pathSeparator" || name == "/":
		return string(filepath.Separator), true
	case name == "userHome" && c.home != "":
		return c.home, true
	case name == "workspaceFolder" && c.dir != "":
		return c.dir, true
	case name == "workspaceFolderBasename" && c.dir != "":
		return filepath.Base(c.dir), true
	}
	return "", false
}

// input replaces a value that an editor asks its user for by an environment variable.
func (c *conversion) input(id string) string {
	name := strings.ToUpper(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(id, "_"))
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "INPUT_" + name
	}
	about := ""
	if c.inputs[id] != "" {
		about = " (" + c.inputs[id] + ")"
	}
	c.note("the input %s%s becomes the environment variable %s of the daemon", id, about, name)
	return "${env:" + name + "}"
}
