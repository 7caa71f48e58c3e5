package secret

import (
	"regexp"
	"strings"
)

// named matches the name of a variable, header or option that holds a secret.
const named = `(?i)token|secret|passw|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization|cookie|(^|[_-])(auth|pat|key|pwd)$`

// formed matches a value that is a secret by its form.
const formed = `^(sk-|gh[pousr]_|github_pat_|glpat-|xox[abps]-|AKIA|eyJ)|://[^/@:]*:[^/@]+@`

// scheme matches the part of a header before the secret.
const scheme = `^(?i:bearer|basic|token)\s+`

// In returns the part of a value that looks like a secret, by the value's name and form,
// and the authentication scheme before it; empty: none. A value with a reference such as
// ${env:NAME} does not count.
func In(name, value string) (before, found string) {
	if value == "" || strings.Contains(value, "${") {
		return "", ""
	}
	before = regexp.MustCompile(scheme).FindString(value)
	found = value[len(before):]
	if !regexp.MustCompile(named).MatchString(name) && !regexp.MustCompile(formed).MatchString(found) {
		return "", ""
	}
	return before, found
}

// Shown returns the arguments of a program with [secret] in place of every text that looks
// like a secret: by the option before it, by its own name and form, or because it looks
// random. It replaces too much rather than too little. It does not find a secret that
// looks like an ordinary word.
func Shown(args []string) []string {
	out := make([]string, 0, len(args))
	option := ""
	for _, arg := range args {
		out = append(out, shown(option, arg))
		option = ""
		if strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") {
			option = strings.TrimLeft(arg, "-")
		}
	}
	return out
}

// assigned matches a name with its value: --name=value, NAME=value or a header.
const assigned = `^(-*([A-Za-z][A-Za-z0-9_.-]*)(?:=|:\s+))(?s:(.*))$`

// random matches the characters of a generated value: at least 20 letters, digits and
// marks of base64. The caller decides whether their mix looks generated.
const random = `^[A-Za-z0-9_+/=-]{20,}$`

// shown returns one argument for printing. option is the name of the option before it, or "".
func shown(option, arg string) string {
	if m := regexp.MustCompile(assigned).FindStringSubmatch(arg); m != nil {
		return m[1] + shown(m[2], m[3])
	}
	if before, found := In(option, arg); found != "" {
		return before + hidden
	}
	switch {
	case strings.ContainsAny(arg, "{[\n ") && regexp.MustCompile(named).MatchString(arg) && !strings.Contains(arg, "${"):
		return hidden // such as an object with a key in it
	case looksRandom(arg):
		return hidden
	case strings.Contains(arg, "://") && strings.Contains(arg, "?"):
		address, _, _ := strings.Cut(arg, "?")
		return address + "?" + hidden
	}
	return arg
}

func looksRandom(text string) bool {
	if !regexp.MustCompile(random).MatchString(text) || strings.HasPrefix(text, "-") || strings.HasPrefix(text, "/") {
		return false
	}
	has := func(class string) bool { return regexp.MustCompile(class).MatchString(text) }
	return has(`[A-Z]`) && has(`[a-z]`) && has(`[0-9]`) || has(`^[0-9A-Fa-f]{32,}$`)
}
