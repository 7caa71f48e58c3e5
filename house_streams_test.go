package doorward_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// streams are the standard streams, and the functions that print to them, by import path.
var streams = map[string]bool{"os.Stdout": true, "os.Stderr": true, "fmt.Print": true, "fmt.Println": true, "fmt.Printf": true,
	"syscall.Stdout": true, "syscall.Stderr": true, "golang.org/x/sys/unix.Stdout": true, "golang.org/x/sys/unix.Stderr": true,
	"builtin.print": true, "builtin.println": true}

// TestTheCommandLinePrintsThroughOnePrinter: only cmd/doorward/print.go, and the package of
// children, use the standard streams. Servers, agents and clients choose much of what is
// printed, and print.go makes hidden characters in it visible.
func TestTheCommandLinePrintsThroughOnePrinter(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.ImportPath == "internal/upstream/process" {
			continue // the streams of children
		}
		for _, name := range p.GoFiles {
			if p.ImportPath == "cmd/doorward" && name == "print.go" {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), p.Dir+"/"+name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, used := range streamsIn(file) {
				t.Errorf("%s/%s uses %s: print through stdout() and stderr() of cmd/doorward/print.go", p.ImportPath, name, used)
			}
		}
	}
}

// streamsIn returns the uses of standard streams in a file, whatever name it imports their package under.
func streamsIn(file *ast.File) (all []string) {
	named, dotted := importsOf(file)
	note := func(used string) {
		if streams[used] {
			all = append(all, used)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				note(named[x.Name] + "." + n.Sel.Name)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok {
				note("builtin." + f.Name)
			}
		case *ast.Ident:
			for _, from := range dotted {
				note(from + "." + n.Name)
			}
		}
		return true
	})
	return all
}

// importsOf returns the import paths of a file by the names that it uses for them, and those whose
// names it uses without one.
func importsOf(file *ast.File) (named map[string]string, dotted []string) {
	named = map[string]string{}
	for _, spec := range file.Imports {
		from, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		switch {
		case spec.Name == nil:
			named[path.Base(from)] = from
		case spec.Name.Name == ".":
			dotted = append(dotted, from)
		default:
			named[spec.Name.Name] = from
		}
	}
	return named, dotted
}

// TestStreamsAreFoundUnderEachName: a standard stream is found under another name of its package,
// and nothing of another package that has such a name.
func TestStreamsAreFoundUnderEachName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`import "os"; var x = os.Stdout`:                               "os.Stdout",
		`import sys "os"; var x = sys.Stderr`:                          "os.Stderr",
		`import f "fmt"; func x() { f.Println() }`:                     "fmt.Println",
		`import . "fmt"; func x() { Println() }`:                       "fmt.Println",
		`import . "os"; var x = Stdout`:                                "os.Stdout",
		`import "golang.org/x/sys/unix"; var x = unix.Stdout`:          "golang.org/x/sys/unix.Stdout",
		`func x() { println() }`:                                       "builtin.println",
		`import os "example.com/mine"; var x = os.Stdout`:              "",
		`import "os"; import f "fmt"; var x = f.Sprint(os.Args)`:       "",
		`import "os"; func x(o struct{ Stdout int }) { _ = o.Stdout }`: "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.Compact(streamsIn(file))
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%s: found %q, want %q", text, got, want)
		}
	}
}
