package onboard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// envFileBytes is the largest size of an environment file.
const envFileBytes = 64 << 10

// environment copies the present variables of an envFile; variables of the entry take
// precedence. The file of a project is read only if it is in the project, because the entry
// may come from a cloned repository and its server gets the values.
func (c *conversion) environment(s *server) {
	given, _ := c.values["envFile"].(string)
	if given == "" {
		return
	}
	if s.command == "" {
		c.note("envFile is not imported: a server over the network has no environment")
		return
	}
	found, odd, err := c.readEnvFile(c.within(c.value(given)))
	if err != nil {
		c.note("envFile is not imported (%v): write its values in env", err)
		return
	}
	for name, value := range found {
		if _, set := s.env[name]; !set {
			s.env[name] = strings.ReplaceAll(value, "${", "$${")
		}
	}
	c.note("envFile %s: %d values are imported as they are now; import again when they change", given, len(found))
	if odd > 0 {
		c.note("envFile %s: %d lines are not NAME=VALUE and left out", given, odd)
	}
}

func (c *conversion) readEnvFile(path string) (found map[string]string, odd int, err error) {
	if !filepath.IsAbs(path) || strings.Contains(path, "${") {
		return nil, 0, errors.New("its path is not known")
	}
	f, err := c.openEnvFile(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	return parseEnv(io.LimitReader(f, envFileBytes))
}

func (c *conversion) openEnvFile(path string) (*os.File, error) {
	dir, name := filepath.Dir(path), filepath.Base(path)
	if c.dir != "" {
		dir = c.dir
		if rel, err := filepath.Rel(dir, path); err == nil {
			name = rel
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	switch fi, err := root.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("it does not exist")
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular() || fi.Size() > envFileBytes:
		return nil, fmt.Errorf("it is not a file of at most %d bytes", envFileBytes)
	}
	return root.Open(name)
}

// variable matches a line of an environment file, in the form that editors and shells
// share.
var variable = `^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$`

// parseEnv parses lines of the form NAME=VALUE; odd is the number of other lines.
func parseEnv(r io.Reader) (found map[string]string, odd int, err error) {
	found = make(map[string]string)
	form := regexp.MustCompile(variable)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, envFileBytes+1)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		m := form.FindStringSubmatch(line)
		if m == nil {
			odd++
			continue
		}
		found[m[1]] = unquoted(m[2])
	}
	return found, odd, lines.Err()
}

// unquoted returns a value without its quotes, or without the comment after it.
func unquoted(value string) string {
	if value != "" && (value[0] == '"' || value[0] == '\'') {
		if end := strings.IndexByte(value[1:], value[0]); end >= 0 {
			text := value[1 : end+1]
			if value[0] == '"' {
				text = strings.ReplaceAll(text, `\n`, "\n")
			}
			return text
		}
	}
	value, _, _ = strings.Cut(value, " #")
	return strings.TrimSpace(value)
}
