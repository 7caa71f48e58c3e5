package config_test

import (
	"errors"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
)

// env makes a lookup from name, value pairs.
func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestFindConfig(t *testing.T) {
	t.Parallel()
	full := env("DOORWARD_CONFIG", "env.yaml", "XDG_CONFIG_HOME", "/xdg", "HOME", "/home/ada")
	for name, c := range map[string]struct {
		flag   string
		env    func(string) (string, bool)
		exists string
		want   string
		here   bool
	}{
		"the flag":                       {"flag.yaml", full, "doorward.yaml", "flag.yaml", false},
		"the variable":                   {"", full, "doorward.yaml", "env.yaml", false},
		"here":                           {"", env("XDG_CONFIG_HOME", "/xdg"), "doorward.yaml", "doorward.yaml", true},
		"the XDG directory":              {"", env("XDG_CONFIG_HOME", "/xdg", "HOME", "/h"), "/xdg/doorward/doorward.yaml", "/xdg/doorward/doorward.yaml", false},
		"its default":                    {"", env("HOME", "/home/ada"), "/home/ada/.config/doorward/doorward.yaml", "/home/ada/.config/doorward/doorward.yaml", false},
		"an empty variable is unset":     {"", env("DOORWARD_CONFIG", "", "XDG_CONFIG_HOME", "", "HOME", "/h"), "/h/.config/doorward/doorward.yaml", "/h/.config/doorward/doorward.yaml", false},
		"a relative XDG path is not one": {"", env("XDG_CONFIG_HOME", "xdg", "HOME", "/h"), "xdg/doorward/doorward.yaml", "", false},
		"nothing":                        {"", env("HOME", "/h"), "", "", false},
		"no environment":                 {"", nil, "", "", false},
		"here is not taken":              {"", env("HOME", "/h"), "/h/.config/doorward/doorward.yaml", "/h/.config/doorward/doorward.yaml", false},
	} {
		here := func() bool { return c.exists == config.Here }
		got := config.FindConfig(c.flag, c.env, here, func(path string) bool { return path == c.exists })
		if want := (config.Found{Path: c.want, Here: c.here}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestFindDirectories(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state, runtime         string // flags
		env                    func(string) (string, bool)
		wantState, wantRuntime string // empty: ErrNoHome
	}{
		"flags":                 {"s", "r", env("DOORWARD_STATE_DIR", "/x", "DOORWARD_RUNTIME_DIR", "/y"), "s", "r"},
		"variables":             {"", "", env("DOORWARD_STATE_DIR", "/x", "DOORWARD_RUNTIME_DIR", "/y", "XDG_RUNTIME_DIR", "/z"), "/x", "/y"},
		"XDG":                   {"", "", env("XDG_STATE_HOME", "/state", "XDG_RUNTIME_DIR", "/run/user/1", "HOME", "/h"), "/state/doorward", "/run/user/1/doorward"},
		"home":                  {"", "", env("HOME", "/h"), "/h/.local/state/doorward", "/h/.local/state/doorward/run"},
		"run follows the flag":  {"/s", "", env("HOME", "/h"), "/s", "/s/run"},
		"run follows the state": {"", "", env("DOORWARD_STATE_DIR", "/x"), "/x", "/x/run"},
		"relative XDG":          {"", "", env("XDG_STATE_HOME", "s", "XDG_RUNTIME_DIR", "r", "HOME", "/h"), "/h/.local/state/doorward", "/h/.local/state/doorward/run"},
		"nothing":               {"", "", env(), "", ""},
		"only a runtime":        {"", "", env("XDG_RUNTIME_DIR", "/run/user/1"), "", "/run/user/1/doorward"},
	} {
		state, err := config.FindState(c.state, c.env)
		if state != c.wantState || errors.Is(err, config.ErrNoHome) != (c.wantState == "") {
			t.Errorf("%s: state %q, %v", name, state, err)
		}
		runtime, err := config.FindRuntime(c.runtime, c.state, c.env)
		if runtime != c.wantRuntime || errors.Is(err, config.ErrNoHome) != (c.wantRuntime == "") {
			t.Errorf("%s: runtime %q, %v", name, runtime, err)
		}
	}
}
