package main

import (
	"bytes"
	"cmp"
	_ "embed" // of the functions by which mutants act
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed acting.txt
var acting string

type options struct {
	run, skip, match string
	cpu              int
	short            bool
}

// measured is one package with its mutants.
type measured struct {
	o       options
	path    string
	dir     string
	name    string
	files   []string
	work    string
	overlay map[string]string
	mutants []mutant
	binary  string
	fast    suite
	all     suite
}

// suite is a selection of tests, with the processor time in seconds and the elapsed time after
// which a run counts as endless.
type suite struct {
	run     string // pattern for -test.run
	cpu     int
	elapsed time.Duration
}

// measure runs the tests for each mutant of a package and prints the surviving ones. It returns
// the percentage of killed mutants among those that a test reaches.
func measure(path string, o options, out io.Writer) (percent float64, err error) {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return 0, fmt.Errorf("-match: %w", err)
	}
	m := &measured{o: o, path: path, overlay: map[string]string{}}
	if m.work, err = os.MkdirTemp("", "mutate"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(m.work)
	if err := m.rewrite(); err != nil {
		return 0, err
	}
	if m.binary, err = m.build(m.overlay, "all.test"); err != nil {
		return 0, err
	}
	reached, err := m.baseline()
	if err != nil {
		return 0, err
	}
	killed, lived, unreached := 0, 0, 0
	for i, mu := range m.mutants {
		if !match.MatchString(mu.String()) {
			continue
		}
		switch dead, err := m.try(i+1, mu, reached); {
		case errors.Is(err, errUnreached):
			unreached++
			fmt.Fprintln(out, "UNREACHED", mu)
		case err != nil:
			return 0, err
		case dead:
			killed++
		default:
			lived++
			fmt.Fprintln(out, "LIVED", mu)
		}
	}
	percent = 100 * float64(killed) / float64(max(killed+lived, 1))
	fmt.Fprintf(out, "%s: %d of %d mutants, %d killed, %d lived, %d unreached, %.1f %%\n",
		base(path), killed+lived+unreached, len(m.mutants), killed, lived, unreached, percent)
	return percent, nil
}

var errUnreached = errors.New("no test reaches it")

// try reports whether a mutant is killed.
func (m *measured) try(id int, mu mutant, reached map[int]bool) (bool, error) {
	switch {
	case mu.fixed:
		return m.tryBuilt(mu)
	case !reached[id]:
		return false, errUnreached
	}
	return m.fails(m.binary, "MUTANT="+strconv.Itoa(id)), nil
}

// tryBuilt tests a mutant in a separate binary. A mutant that does not compile counts as
// unreached.
func (m *measured) tryBuilt(mu mutant) (bool, error) {
	text, err := os.ReadFile(mu.where.Filename)
	if err != nil {
		return false, err
	}
	changed := filepath.Join(m.work, "fixed.go")
	if err := os.WriteFile(changed, only(mu, text), 0o600); err != nil {
		return false, err
	}
	binary, err := m.build(map[string]string{mu.where.Filename: changed}, "fixed.test")
	if err != nil {
		return false, errUnreached
	}
	return m.fails(binary), nil
}

// fails runs the fast tests first, because they kill most mutants.
func (m *measured) fails(binary string, env ...string) bool {
	if _, _, err := m.runTests(binary, m.fast, env...); err != nil {
		return true
	}
	_, _, err := m.runTests(binary, m.all, env...)
	return err != nil
}

// runTests limits processor time, because elapsed time depends on the load, and elapsed time,
// for tests that block. It returns the output and the selection with limits for a mutant: a
// mutant may take ten times as much.
func (m *measured) runTests(binary string, s suite, env ...string) ([]byte, suite, error) {
	args := []string{"-c", "ulimit -t " + strconv.Itoa(s.cpu) + "; exec \"$@\"", "sh", binary,
		"-test.failfast", "-test.v", "-test.timeout=" + s.elapsed.String(), "-test.short=" + strconv.FormatBool(m.o.short), "-test.run=" + s.run}
	if m.o.skip != "" {
		args = append(args, "-test.skip="+m.o.skip)
	}
	cmd := exec.Command("sh", args...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), env...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	s.elapsed = min(s.elapsed, 10*time.Second+10*time.Since(start))
	s.cpu = min(s.cpu, 2+int(10*spent(cmd).Seconds()))
	return out, s, err
}

// spent returns the processor time of a command that has ended.
func spent(cmd *exec.Cmd) time.Duration {
	if cmd.ProcessState == nil {
		return 0 // it did not start
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// mostElapsed is the longest time that a run of tests may take.
const mostElapsed = 5 * time.Minute

// baseline runs the tests without a mutant, and notes which mutants they reach and how long
// they take.
func (m *measured) baseline() (map[int]bool, error) {
	seen := filepath.Join(m.work, "seen")
	out, all, err := m.runTests(m.binary, suite{m.o.run, m.o.cpu, mostElapsed}, "MUTANTS_SEEN="+seen)
	if err != nil {
		return nil, fmt.Errorf("the tests fail without a mutant: %w\n%s", err, out)
	}
	m.all, all.run = all, fastTests(string(out))
	if out, m.fast, err = m.runTests(m.binary, all); err != nil {
		return nil, fmt.Errorf("the fast tests fail without a mutant: %w\n%s", err, out)
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		return nil, err
	}
	reached := make(map[int]bool)
	for _, word := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		reached[id] = true
	}
	return reached, nil
}

// fastTests selects the fastest tests that together take at most a tenth of the total time. It
// returns a pattern for -test.run.
func fastTests(out string) string {
	type test struct {
		name    string
		seconds float64
	}
	var all []test
	total, sum := 0.0, 0.0
	for _, found := range passed.FindAllStringSubmatch(out, -1) {
		seconds, _ := strconv.ParseFloat(found[2], 64) // the expression matches digits only
		all = append(all, test{found[1], seconds})
		total += seconds
	}
	slices.SortFunc(all, func(a, b test) int { return cmp.Compare(a.seconds, b.seconds) })
	var fast []string
	for _, t := range all {
		if sum += t.seconds; sum > total/10 {
			break
		}
		fast = append(fast, t.name)
	}
	return "^(" + strings.Join(fast, "|") + ")$"
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \(([0-9.]+)s\)$`)

func (m *measured) build(overlay map[string]string, name string) (string, error) {
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	list := filepath.Join(m.work, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(m.work, name)
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", list, "-o", binary, m.path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the tests: %w\n%s", err, out)
	}
	return binary, nil
}

// rewrite makes the overlay in which each file contains its mutants.
func (m *measured) rewrite() error {
	export, err := m.list()
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	files, texts := make([]*ast.File, len(m.files)), make([][]byte, len(m.files))
	for i, name := range m.files {
		if texts[i], err = os.ReadFile(name); err != nil {
			return err
		}
		if files[i], err = parser.ParseFile(fset, name, texts[i], parser.SkipObjectResolution); err != nil {
			return err
		}
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	open := func(path string) (io.ReadCloser, error) { return os.Open(export[path]) }
	check := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
	pkg, err := check.Check(m.path, fset, files, info)
	if err != nil {
		return err
	}
	for i, file := range files {
		s := &schema{fset: fset, info: info, pkg: pkg, file: fset.File(file.Pos()), edits: newEdits(), all: &m.mutants}
		s.walk(file)
		if err := m.replace(m.files[i], fmt.Sprintf("%d.go", i), s.edits.apply(texts[i])); err != nil {
			return err
		}
	}
	return m.replace(filepath.Join(m.dir, "mutants_acting.go"), "acting.go", []byte("package "+m.name+"\n"+acting))
}

func (m *measured) replace(path, name string, text []byte) error {
	m.overlay[path] = filepath.Join(m.work, name)
	return os.WriteFile(m.overlay[path], text, 0o600)
}

// list finds the files of the package, and the export data of its imports.
func (m *measured) list() (map[string]string, error) {
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=Dir,Name,ImportPath,Export,GoFiles,DepOnly", m.path).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	export := make(map[string]string)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, Name, ImportPath, Export string
			GoFiles                       []string
			DepOnly                       bool
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return export, nil
		} else if err != nil {
			return nil, err
		}
		export[p.ImportPath] = p.Export
		if !p.DepOnly {
			m.dir, m.name = p.Dir, p.Name
			for _, name := range p.GoFiles {
				m.files = append(m.files, filepath.Join(p.Dir, name))
			}
		}
	}
}
