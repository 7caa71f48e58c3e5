package scan

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

const (
	// shortest is the least length of a needed text: shorter ones occur too often.
	shortest = 3
	// most bounds the texts that are searched in place of one expression.
	most = 32
)

// needs returns texts of which every match of the expression contains one, in lower case;
// nil: there are none worth searching for.
func needs(re *syntax.Regexp) [][]byte {
	if all := exactly(re); all != nil {
		return worth(all)
	}
	switch re.Op {
	case syntax.OpCapture, syntax.OpPlus:
		return needs(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return needs(re.Sub[0])
		}
	case syntax.OpConcat:
		return ofParts(re.Sub)
	case syntax.OpAlternate:
		var out [][]byte
		for _, p := range re.Sub {
			n := needs(p)
			if n == nil {
				return nil
			}
			out = append(out, n...)
		}
		if len(out) <= most {
			return out
		}
	}
	return nil
}

// ofParts returns the best of what the parts need. Neighbouring parts that match only a few
// texts are combined.
func ofParts(parts []*syntax.Regexp) (best [][]byte) {
	run := []string{""}
	flush := func() {
		best = better(best, worth(run))
		run = []string{""}
	}
	for _, p := range parts {
		all := exactly(p)
		if all == nil || len(run)*len(all) > most {
			flush()
		}
		if all == nil {
			best = better(best, needs(p))
			continue
		}
		run = joined(run, all)
	}
	flush()
	return best
}

// exactly lists all texts that an expression can match, if these are few; nil: they are not.
func exactly(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpNoWordBoundary, syntax.OpBeginText, syntax.OpBeginLine, syntax.OpEndText, syntax.OpEndLine:
		return []string{""}
	case syntax.OpCapture:
		return exactly(re.Sub[0])
	case syntax.OpCharClass:
		return ofClass(re.Rune)
	case syntax.OpConcat:
		out := []string{""}
		for _, p := range re.Sub {
			all := exactly(p)
			if all == nil || len(out)*len(all) > most {
				return nil
			}
			out = joined(out, all)
		}
		return out
	case syntax.OpAlternate:
		var out []string
		for _, p := range re.Sub {
			all := exactly(p)
			if all == nil || len(out)+len(all) > most {
				return nil
			}
			out = append(out, all...)
		}
		return out
	}
	return nil
}

// ofClass lists the members of a small character class, which is given as ranges.
func ofClass(ranges []rune) []string {
	var out []string
	for i := 0; i < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if len(out) == most {
				return nil
			}
			out = append(out, string(r))
		}
	}
	return out
}

func joined(heads, tails []string) []string {
	out := make([]string, 0, len(heads)*len(tails))
	for _, h := range heads {
		for _, t := range tails {
			out = append(out, h+t)
		}
	}
	return out
}

// worth returns the texts in lower case, nil if one of them occurs too often. Texts beyond
// ASCII are not searched for, because they fold in other ways.
func worth(all []string) [][]byte {
	out := make([][]byte, 0, len(all))
	for _, t := range all {
		if len(t) < shortest || strings.ContainsFunc(t, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return nil
		}
		out = append(out, []byte(strings.ToLower(t)))
	}
	return out
}

// better returns the one of two that occurs less often: the longer texts, then the fewer.
func better(a, b [][]byte) [][]byte {
	if a == nil || b != nil && score(b) > score(a) {
		return b
	}
	return a
}

func score(texts [][]byte) int {
	least := len(texts[0])
	for _, t := range texts {
		least = min(least, len(t))
	}
	return least*most - len(texts)
}
