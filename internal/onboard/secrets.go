package onboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/secret"
)

// A Secret is a value of a server that looks like a secret, with the reference that
// replaces it in the configuration.
type Secret struct {
	Server, Key string
	Value       secret.Value
	Ref         string // such as ${file:/path}
}

// secrets lists the values of a server that look like secrets. If refer is not nil,
// its references replace them.
func (s *server) secrets(name string, refer func(server, key string) string) []Secret {
	var out []Secret
	for _, values := range []map[string]string{s.env, s.headers} {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			before, found := secret.In(key, values[key])
			if found == "" {
				continue
			}
			one := Secret{Server: name, Key: key, Value: secret.New(found)}
			if refer != nil {
				one.Ref = refer(name, key)
				values[key] = before + one.Ref
			}
			out = append(out, one)
		}
	}
	return out
}

// secretArgs returns the arguments that look like secrets: the option, or the position.
func (s *server) secretArgs() (found []string) {
	option := ""
	for i, arg := range s.args {
		name, value, joined := strings.Cut(arg, "=")
		switch _, plain := secret.In("", arg); {
		case strings.HasPrefix(arg, "-") && joined:
			if _, is := secret.In(strings.TrimLeft(name, "-"), value); is != "" {
				found = append(found, name)
			}
			option = ""
			continue
		case strings.HasPrefix(arg, "-"):
			option = arg
			continue
		case plain != "":
			found = append(found, fmt.Sprintf("argument %d", i+1))
		case option != "":
			if _, is := secret.In(strings.TrimLeft(option, "-"), arg); is != "" {
				found = append(found, option)
			}
		}
		option = ""
	}
	return found
}
