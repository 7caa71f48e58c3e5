package policy

import (
	"strconv"
	"strings"
)

// patterns is a compiled List; the rule names are built once, since Decide
// runs on every call.
type patterns struct {
	allow, deny []pattern
	none        string // rule when no allow pattern matches
	any         bool   // allow is exactly `*` and there is no deny
}

type pattern struct {
	glob, rule string
}

func compile(prefix string, l List) patterns {
	p := patterns{none: prefix + ".allow"}
	for i, g := range l.Allow {
		p.allow = append(p.allow, pattern{g, prefix + ".allow[" + strconv.Itoa(i) + "]"})
	}
	for i, g := range l.Deny {
		p.deny = append(p.deny, pattern{g, prefix + ".deny[" + strconv.Itoa(i) + "]"})
	}
	p.any = len(l.Deny) == 0 && len(l.Allow) == 1 && l.Allow[0] == "*"
	return p
}

// decide applies the lists on top of the decision d that let the caller in.
// A deny always wins; without a matching allow the answer is deny.
func (p *patterns) decide(name string, d Decision) Decision {
	if p.any {
		return d
	}
	for _, x := range p.deny {
		if Match(x.glob, name) {
			return Decision{Rule: x.rule, Reason: "denied by the server's list"}
		}
	}
	for _, x := range p.allow {
		if Match(x.glob, name) {
			return Decision{Allow: true, Rule: x.rule, Reason: "allowed by the server's list"}
		}
	}
	return Decision{Rule: p.none, Reason: "not on the server's list"}
}

// Match reports whether name matches glob, in which `*` stands for any run
// of bytes and everything else for itself. Comparison is exact: tool names
// are case-sensitive.
//
// What stands between two stars is taken where it first occurs: that leaves
// the most for the rest, so no second try can do better, and the time is
// linear in the length of name for each star.
func Match(glob, name string) bool {
	head, rest, star := strings.Cut(glob, "*")
	if !star {
		return name == glob
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(name, part)
		}
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name, rest = name[at+len(part):], more
	}
}
