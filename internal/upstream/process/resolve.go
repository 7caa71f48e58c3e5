package process

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// FallbackPath is the PATH if the daemon itself has none.
const FallbackPath = "/usr/local/bin:/usr/bin:/bin"

// shellish lists the characters that have a meaning in a shell and do not belong into a program's name.
const shellish = "|&;<>()$`\\\"'*?[]#~{}!% \t\n\r\v\f"

// errNotExecutable says that a file exists and this user may not execute it.
var errNotExecutable = errors.New("not executable by the daemon's user; run chmod +x on it")

// Resolve turns a configured command into the absolute path of an executable file, once, at load.
//
// A command with a slash is the path of the file, relative to the daemon's working directory. Any other command is
// searched in pathEnv, without its empty and relative entries. Symbolic links are kept, because many programs look at
// the name they were called by. A command that looks like a shell line and is not a file is refused with a hint.
// Errors are text for the operator; they wrap fs.ErrNotExist if a file is missing.
func Resolve(command, pathEnv string) (string, error) {
	if command == "" {
		return "", errors.New("command is empty")
	}
	if strings.ContainsRune(command, 0) {
		return "", fmt.Errorf("command %q contains a NUL byte", command)
	}
	path, err := find(command, pathEnv)
	if err != nil && errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(command, shellish) {
		return "", fmt.Errorf("command %q looks like a shell command line, and no shell is used: "+
			"write the program alone in command and each argument as an item of args: %w", command, fs.ErrNotExist)
	}
	return path, err
}

func find(command, pathEnv string) (string, error) {
	if strings.Contains(command, "/") {
		path, err := filepath.Abs(command)
		if err != nil {
			return "", fmt.Errorf("command %q: making the path absolute: %w", command, err)
		}
		if err := executable(path); err != nil {
			return "", fmt.Errorf("command %q: %w", command, err)
		}
		return path, nil
	}
	return search(command, pathEnv)
}

// search searches PATH. A file that is found but cannot be executed does not end the search, as with execvp, but is
// named in the error if no other one follows.
func search(name, pathEnv string) (string, error) {
	if pathEnv == "" {
		pathEnv = FallbackPath
	}
	var near error
	for _, dir := range filepath.SplitList(pathEnv) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if near == nil && !errors.Is(err, fs.ErrNotExist) {
			near = err
		}
	}
	if near != nil {
		return "", fmt.Errorf("command %q: %w", name, near)
	}
	return "", fmt.Errorf("command %q is not in PATH (%s): %w", name, pathEnv, fs.ErrNotExist)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o111 == 0, !mayExecute(path):
		return fmt.Errorf("%s: %w", path, errNotExecutable)
	}
	return nil
}

// Environment returns a server's complete environment: PATH, HOME, USER, LANG and TMPDIR of the daemon if they are
// set, and the declared variables, which take precedence. Nothing else of the daemon's environment is inherited. PATH
// is always set. The result is sorted.
func Environment(declared map[string]string) []string {
	vars := map[string]string{}
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			vars[name] = v
		}
	}
	if vars["PATH"] == "" {
		vars["PATH"] = FallbackPath
	}
	maps.Copy(vars, declared)
	env := make([]string, 0, len(vars))
	for name, v := range vars {
		env = append(env, name+"="+v)
	}
	slices.Sort(env)
	return env
}
