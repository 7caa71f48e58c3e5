package onboard

import (
	"os"
	"path/filepath"
	"strings"
)

// places holds the paths of a user's file by operating system. The first one that exists is
// used, and otherwise the first one that can be determined is created.
//
// A path begins with ~ for the home directory, $XDG for XDG_CONFIG_HOME or ~/.config, $APP
// for the directory of applications' settings, $LOCAL for the one that does not roam, or a
// variable of the client. Without that variable the path is skipped; with it the client
// reads only this path.
type places struct{ linux, darwin, windows []string }

func everywhere(paths ...string) places { return places{paths, paths, paths} }

// Places holds the facts about a machine that determine the places of files.
type Places struct {
	Env func(name string) (string, bool) // environment variables
	OS  string                           // as runtime.GOOS
	Dir string                           // the directory of the project, absolute
}

// User returns the path of the client's file of the user. The error is ErrNoHome.
func (p Places) User(c *Client) (string, error) {
	all := p.candidates(c)
	if len(all) == 0 {
		return "", ErrNoHome
	}
	return present(all), nil
}

// users returns the paths of all files of the user in which the client may have servers.
func (p Places) users(c *Client) []string {
	all := p.candidates(c)
	if c.each || len(all) == 0 {
		return all
	}
	return []string{present(all)}
}

// candidates returns the paths of which one is the client's file of the user.
func (p Places) candidates(c *Client) (all []string) {
	for _, template := range c.user.of(p.OS) {
		path := p.expand(template)
		switch {
		case path == "":
		case ofClient(template):
			return []string{path}
		default:
			all = append(all, path)
		}
	}
	return all
}

// ofClient reports whether a template begins with a variable of the client.
func ofClient(template string) bool {
	begin, _, _ := strings.Cut(template, "/")
	switch begin {
	case "~", "$XDG", "$APP", "$LOCAL":
		return false
	}
	return true
}

// Project returns the path of the client's file of the project. The error is ErrScope.
func (p Places) Project(c *Client) (string, error) {
	var all []string
	for _, path := range c.project {
		all = append(all, filepath.Join(p.Dir, filepath.FromSlash(path)))
	}
	if len(all) == 0 {
		return "", ErrScope
	}
	return present(all), nil
}

// present returns the first path that exists, else the first.
func present(paths []string) string {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return paths[0]
}

func (p places) of(system string) []string {
	switch system {
	case "darwin":
		return p.darwin
	case "windows":
		return p.windows
	}
	return p.linux
}

// expand returns the path of a template; empty: it cannot be determined.
func (p Places) expand(template string) string {
	begin, rest, _ := strings.Cut(template, "/")
	dir := ""
	switch begin {
	case "~":
		dir = p.home()
	case "$XDG":
		dir = p.or(p.variable("XDG_CONFIG_HOME"), ".config")
	case "$APP":
		dir = p.applications()
	case "$LOCAL":
		dir = p.or(p.variable("LOCALAPPDATA"), "AppData/Local")
	default:
		dir = p.variable(begin[1:])
	}
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, filepath.FromSlash(rest))
}

// applications returns the directory of the settings of desktop programs.
func (p Places) applications() string {
	switch p.OS {
	case "darwin":
		return p.or("", "Library/Application Support")
	case "windows":
		return p.or(p.variable("APPDATA"), "AppData/Roaming")
	}
	return p.or(p.variable("XDG_CONFIG_HOME"), ".config")
}

// or returns dir, or the path under the home directory if dir is empty.
func (p Places) or(dir, underHome string) string {
	if home := p.home(); dir == "" && home != "" {
		return filepath.Join(home, filepath.FromSlash(underHome))
	}
	return dir
}

func (p Places) home() string {
	if home := p.variable("HOME"); home != "" || p.OS != "windows" {
		return home
	}
	return p.variable("USERPROFILE")
}

// variable returns the value of a variable if it is an absolute path.
func (p Places) variable(name string) string {
	if v, _ := p.Env(name); filepath.IsAbs(v) {
		return v
	}
	return ""
}
