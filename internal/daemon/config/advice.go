package config

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// The advice of a problem says what to write instead of a value of the wrong kind.

// mostNamed is how many keys or words a problem lists.
const mostNamed = 8

// thereAre lists the keys of a section, or says where they are listed.
func thereAre(keys []string) string {
	if len(keys) > mostNamed {
		return "; doorward schema lists the keys that there are"
	}
	return "; there are " + strings.Join(keys, ", ")
}

// mappingOf describes a section by its keys.
func (d *decoder) mappingOf(t reflect.Type) string {
	if keys := d.keys(t); len(keys) <= mostNamed {
		return "a mapping with " + strings.Join(keys, ", ")
	}
	return "a mapping"
}

// insteadOf is what to write where a list or a mapping is wanted and n stands.
func insteadOf(n *yaml.Node, want yaml.Kind, what string) string {
	switch {
	case strings.HasPrefix(what, "a list of mappings") && n.Kind == yaml.ScalarNode:
		return "; write an entry below the key, behind -"
	case want == yaml.MappingNode:
		return "; write name: value, one a line"
	case n.Kind == yaml.MappingNode:
		return "; put - before each entry"
	}
	return "; write [one, another], or one a line behind -"
}

// wrongText is what is wrong with the value of a key that takes certain texts; empty: nothing, or nothing special.
func wrongText(n *yaml.Node, f field) string {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return ""
	}
	off := ""
	if n.Tag == "!!bool" && strings.EqualFold(n.Value, "false") && slices.Contains(append(f.words, f.enum...), "off") {
		off = "; did you mean off?"
	}
	switch {
	case f.key == "addr":
		return "this must be host:port, such as 127.0.0.1:7866"
	case f.key == "command":
		return fmt.Sprintf("this must be text, not %s; give the program alone, and its arguments in args", kindName(n))
	case f.enum != nil:
		return fmt.Sprintf("this must be one of %s, not %s%s", strings.Join(f.enum, ", "), kindName(n), off)
	case len(f.words) > 1 && len(f.words) < mostNamed:
		return fmt.Sprintf("this must be %s or a path, not %s%s", strings.Join(f.words, ", "), kindName(n), off)
	}
	return ""
}

// wholeNumber is what to write for a number with a unit, in quotes or with underscores.
func wholeNumber(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	size, ok := parseSize(strings.NewReplacer("_", "", ",", "", " ", "").Replace(n.Value))
	if !ok {
		return ""
	}
	return fmt.Sprintf("; write %d", size)
}

// withUnit is what to write for a time without a unit, or in days.
func withUnit(text string) string {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil && n > 0 {
		return fmt.Sprintf("; write %ds for seconds", n)
	}
	days, _ := strings.CutSuffix(text, "d")
	if n, err := strconv.ParseUint(days, 10, 16); err == nil && n > 0 {
		return fmt.Sprintf("; write %dh for days", 24*n)
	}
	return ""
}

// withBinaryUnit is what to write for a size in the units of disks.
func withBinaryUnit(text string) string {
	text = strings.ToLower(strings.ReplaceAll(text, " ", ""))
	for _, u := range []struct{ end, unit string }{{"kb", "KiB"}, {"mb", "MiB"}, {"gb", "GiB"}, {"k", "KiB"}, {"m", "MiB"}, {"g", "GiB"}} {
		if digits, ok := strings.CutSuffix(text, u.end); ok && bareInt.MatchString(digits) {
			return "; write " + digits + u.unit
		}
	}
	return ""
}

// orZero: a time may be 0 unless its key has a least one.
func orZero(low time.Duration) string {
	if low > 0 {
		return ""
	}
	return ", or 0"
}

// installs are what brings a program that most servers are started by.
var installs = map[string]string{"npx": "Node.js", "npm": "Node.js", "node": "Node.js", "uvx": "uv", "uv": "uv", "docker": "Docker", "podman": "Podman",
	"bunx": "Bun", "deno": "Deno", "python": "Python", "python3": "Python"}

// commandAdvice is what to do about a program that was not found.
func commandAdvice(command string, err error) string {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return ""
	case strings.Contains(command, "/"):
		return "; correct the path, which begins at the directory of this file"
	case installs[command] != "":
		return "; install " + installs[command] + ", which brings it, or write its absolute path"
	}
	return "; install it, or write its absolute path"
}

// profileAdvice warns of a path that was probably to be the name of a profile.
func (d *decoder) profileAdvice(key, text string, f field) {
	if len(f.words) < 2 || strings.Contains(text, "/") || text == "" {
		return
	}
	if meant := suggest(text, f.words); meant != "" {
		d.report.warn(key, "this is a path beside this file, and no profile has that name"+meant+" For the path write ./ before it")
	}
}

// typographic are the quotation marks that an office program makes.
const typographic = "“”„‟‘’‚«»"

// curly notes a text in quotation marks that are letters here.
func (s source) curly(at string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Style == 0 && strings.ContainsAny(firstRune(n.Value), typographic) {
		s.report.failAt(n.Line, at, `a text begins with a typographic quotation mark, which is a letter here; write " or '`)
	}
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// shellVariable is a variable as a shell writes it, which is text here.
var shellVariable = lazily(`(^|[\s=:/])\$[A-Z][A-Z0-9_]*($|[\s:/])`)

// warnUnbraced warns of variables that are not filled in. Their names are not repeated: they may be part of a secret.
func (r *report) warnUnbraced(key, text string) {
	if shellVariable.MatchString(text) {
		r.warn(key, "a name behind $ without braces is text; write ${NAME} for the variable")
	}
}

// warnHome warns of arguments in which a shell would fill in the home directory.
func (r *report) warnHome(key, arg string) {
	if arg == "~" || strings.HasPrefix(arg, "~/") || strings.Contains(arg, "=~/") {
		r.warn(key, "~ is not expanded; write ${HOME}")
	}
}
