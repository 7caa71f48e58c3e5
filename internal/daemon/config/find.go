package config

import (
	"errors"
	"path/filepath"
)

// ErrNoHome is the answer when no variable says where the user's files are.
var ErrNoHome = errors.New("neither an XDG directory nor HOME is set; name the directory by flag or DOORWARD_ variable")

// Here is the configuration file of the working directory.
const Here = "doorward.yaml"

// Found is a configuration file: the built-in defaults when its path is empty.
type Found struct {
	Path string
	Here bool // it is the working directory's, which nobody named
}

// FindConfig returns the configuration file to load: flag, else $DOORWARD_CONFIG, else ./doorward.yaml if here takes it,
// else $XDG_CONFIG_HOME/doorward/doorward.yaml, else the built-in defaults. exists is asked about the file of the XDG
// directory alone: a file that was named and is missing is Load's to report. A variable that is empty counts as unset,
// and so does an XDG variable that is not absolute.
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

// FindRuntime returns the runtime directory: flag, else $DOORWARD_RUNTIME_DIR, else $XDG_RUNTIME_DIR/doorward, else run
// in the state directory, which stateFlag and env give. The error is ErrNoHome.
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

// configHome is where configurations lie, and where relative paths begin when there is no file. Empty: unknown.
func configHome(env func(string) (string, bool)) string {
	base := baseDir(env, "XDG_CONFIG_HOME", ".config")
	if base == "" {
		return ""
	}
	return filepath.Join(base, "doorward")
}

// baseDir is an XDG base directory, or its place under HOME. Empty: neither is set.
func baseDir(env func(string) (string, bool), name, underHome string) string {
	if dir := get(env, name); filepath.IsAbs(dir) {
		return dir
	}
	if home := get(env, "HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, underHome)
	}
	return ""
}

// get is the variable's value, empty when unset.
func get(env func(string) (string, bool), name string) string {
	if env == nil {
		return ""
	}
	value, _ := env(name)
	return value
}

// either is a, or b when a is empty.
func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
