package config

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled at its first use. Each server is started through two
// processes of this program, which read no configuration and should not spend time on compiling
// expressions.
type pattern struct {
	text     string
	compiled func() *regexp.Regexp
}

func lazily(text string) pattern {
	return pattern{text: text, compiled: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

func (p pattern) String() string                       { return p.text }
func (p pattern) MatchString(s string) bool            { return p.compiled().MatchString(s) }
func (p pattern) FindStringSubmatch(s string) []string { return p.compiled().FindStringSubmatch(s) }
