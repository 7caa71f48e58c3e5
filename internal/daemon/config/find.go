package config

import (
	"errors"
	"path/filepath"
)

// ErrNoHome means that no variable names the user's directories.
var ErrNoHome = errors.New("neither an XDG directory nor HOME is set; name the directory by flag or DOORWARD_ variable")

// Here is the configuration file in the working directory.
const Here = "doorward.yaml"

// Found is a configuration file; an empty path means the built-in defaults.
type Found struct {
	Path string
	Here bool // it is in the working directory, and was not named
}

// FindConfig returns the configuration file to load: flag, else $DOORWARD_CONFIG, else ./doorward.yaml if
// here accepts it, else $XDG_CONFIG_HOME/doorward/doorward.yaml, else the built-in defaults. exists is
// called only for the file in the XDG directory: Load reports a named file that is missing. An empty
// variable counts as unset, and so does an XDG variable that is not absolute.
func FindConfig(flag string, env func(string) (string, bool), here func() bool, exists func(path string) bool) Found {
	if named := either(flag, get(env, "DOORWARD_CONFIG")); named != "" {
		return Found{Path: named}
	}
	if here() {
		return Found{Path: Here, Here: true}
	}
	if dir := configHome(env); dir != "" && exists(filepath.Join(dir, "doorward.yaml")) {
		return Found{Path: filepath.Join(dir, "doorward.yaml")}
	}
	return Found{}
}

// FindState returns the state directory: flag, else $DOORWARD_STATE_DIR, else $XDG_STATE_HOME/doorward, where
// XDG_STATE_HOME is ~/.local/state when unset. The error is ErrNoHome.
func FindState(flag string, env func(string) (string, bool)) (string, error) {
	if named := either(flag, get(env, "DOORWARD_STATE_DIR")); named != "" {
		return named, nil
	}
	base := baseDir(env, "XDG_STATE_HOME", ".local/state")
	if base == "" {
		return "", ErrNoHome
	}
	return filepath.Join(base, "doorward"), nil
}

// FindRuntime returns the runtime directory: flag, else $DOORWARD_RUNTIME_DIR, else
// $XDG_RUNTIME_DIR/doorward, else run in the state directory of stateFlag and env. The error is ErrNoHome.
func FindRuntime(flag, stateFlag string, env func(string) (string, bool)) (string, error) {
	if named := either(flag, get(env, "DOORWARD_RUNTIME_DIR")); named != "" {
		return named, nil
	}
	if base := get(env, "XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		return filepath.Join(base, "doorward"), nil
	}
	state, err := FindState(stateFlag, env)
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "run"), nil
}

// configHome returns the directory of configurations, to which paths are relative if there is no file.
// Empty: unknown.
func configHome(env func(string) (string, bool)) string {
	base := baseDir(env, "XDG_CONFIG_HOME", ".config")
	if base == "" {
		return ""
	}
	return filepath.Join(base, "doorward")
}

// baseDir returns an XDG base directory, or its default under HOME. Empty: neither is set.
func baseDir(env func(string) (string, bool), name, underHome string) string {
	if dir := get(env, name); filepath.IsAbs(dir) {
		return dir
	}
	if home := get(env, "HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, underHome)
	}
	return ""
}

// get returns the value of a variable, empty if it is unset.
func get(env func(string) (string, bool), name string) string {
	if env == nil {
		return ""
	}
	value, _ := env(name)
	return value
}

// either returns a, or b if a is empty.
func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
