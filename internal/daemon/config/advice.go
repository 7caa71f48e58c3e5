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

// Advice is the part of a problem that says what to write instead of a wrong value.

// mostNamed is the largest number of keys or words that a problem lists.
const mostNamed = 8

// thereAre lists the keys of a section, or names the command that lists them.
func thereAre(keys []string) string {
	if len(keys) > mostNamed {
		return "; doorward schema lists all keys"
	}
	return "; the keys are " + strings.Join(keys, ", ")
}

// mappingOf describes a section by its keys.
func (d *decoder) mappingOf(t reflect.Type) string {
	if keys := d.keys(t); len(keys) <= mostNamed {
		return "a mapping with " + strings.Join(keys, ", ")
	}
	return "a mapping"
}

// insteadOf returns the advice for a node n in place of a list or a mapping.
func insteadOf(n *yaml.Node, want yaml.Kind, what string) string {
	switch {
	case strings.HasPrefix(what, "a list of mappings") && n.Kind == yaml.ScalarNode:
		return "; write an entry below the key, after -"
	case want == yaml.MappingNode:
		return "; write name: value, one per line"
	case n.Kind == yaml.MappingNode:
		return "; put - before each entry"
	}
	return "; write [one, another], or one per line after -"
}

// wrongText describes an invalid value of a key that takes certain texts; empty: it is valid, or the
// general text is sufficient.
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
	case f.key == "wait":
		return "this must be auto, or a time of at most 1h with its unit, such as 50s" + withUnit(n.Value)
	case f.enum != nil:
		return fmt.Sprintf("this must be one of %s, not %s%s", strings.Join(f.enum, ", "), kindName(n), off)
	case len(f.words) > 1 && len(f.words) < mostNamed:
		return fmt.Sprintf("this must be %s or a path, not %s%s", strings.Join(f.words, ", "), kindName(n), off)
	}
	return ""
}

// wholeNumber returns the advice for a number with a unit, in quotes or with underscores.
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

// withUnit returns the advice for a time without a unit, or in days.
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

// withBinaryUnit returns the advice for a size in decimal units or abbreviated ones.
func withBinaryUnit(text string) string {
	text = strings.ToLower(strings.ReplaceAll(text, " ", ""))
	for _, u := range []struct{ end, unit string }{{"kb", "KiB"}, {"mb", "MiB"}, {"gb", "GiB"}, {"k", "KiB"}, {"m", "MiB"}, {"g", "GiB"}} {
		if digits, ok := strings.CutSuffix(text, u.end); ok && bareInt.MatchString(digits) {
			return "; write " + digits + u.unit
		}
	}
	return ""
}

// orZero returns text that allows 0, unless the key has a smallest time.
func orZero(low time.Duration) string {
	if low > 0 {
		return ""
	}
	return ", or 0"
}

// installs maps common programs to the packages that contain them.
var installs = map[string]string{"npx": "Node.js", "npm": "Node.js", "node": "Node.js", "uvx": "uv", "uv": "uv", "docker": "Docker", "podman": "Podman",
	"bunx": "Bun", "deno": "Deno", "python": "Python", "python3": "Python"}

// commandAdvice returns the advice for a program that was not found.
func commandAdvice(s *Server, err error) string {
	command := s.Command
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return ""
	case len(s.Args) > 1 && strings.TrimSuffix(strings.ToLower(command), ".exe") == "cmd" && strings.EqualFold(s.Args[0].Reveal(), "/c"):
		return "; this entry is for Windows: write what follows /c as command, and the rest as args"
	case strings.Contains(command, "/"):
		return "; correct the path, which begins at the directory of this file"
	case installs[command] != "":
		return "; install " + installs[command] + ", which brings it, or write its absolute path"
	}
	return "; install it, or write its absolute path"
}

// profileAdvice warns of a path that looks like a misspelt name of a profile.
func (d *decoder) profileAdvice(key, text string, f field) {
	if len(f.words) < 2 || strings.Contains(text, "/") || text == "" {
		return
	}
	if meant := suggest(text, f.words); meant != "" {
		d.report.warn(key, "this is a path beside this file, and no profile has that name"+meant+" For the path write ./ before it")
	}
}

// typographic is the set of quotation marks that word processors insert.
const typographic = "“”„‟‘’‚«»"

// curly reports a text that begins with such a mark, which YAML treats as a letter.
func (s source) curly(at string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Style == 0 && strings.ContainsAny(firstRune(n.Value), typographic) {
		s.report.failAt(n.Line, at, `a text begins with a typographic quotation mark, which does not quote here; write " or '`)
	}
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// shellVariable matches a variable in the notation of a shell, which is plain text in this file.
var shellVariable = lazily(`(^|[\s=:/])\$[A-Z][A-Z0-9_]*($|[\s:/])`)

// warnUnbraced warns of variables that are not expanded. It does not repeat their names, which may be part
// of a secret.
func (r *report) warnUnbraced(key, text string) {
	if shellVariable.MatchString(text) {
		r.warn(key, "a name after $ without braces is text; write ${NAME} for the variable")
	}
}

// warnHome warns of arguments in which a shell would expand the home directory.
func (r *report) warnHome(key, arg string) {
	if arg == "~" || strings.HasPrefix(arg, "~/") || strings.Contains(arg, "=~/") {
		r.warn(key, "~ is not expanded; write ${HOME}")
	}
}
