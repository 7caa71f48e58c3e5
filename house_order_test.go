package doorward_test

import (
	"bytes"
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
	"slices"
	"strings"
	"testing"
)

// backwardMost is the most backward references between the files of a package.
// Files that can be put into an order, each using only what stands below it, are
// read one by one; with more references against the order they are read all at once.
const backwardMost = 14

// TestFilesOfAPackageHaveAnOrder counts the references of a file to names that a later
// file declares, each name once for each file that uses it, in the best order that is
// found by moving single files.
func TestFilesOfAPackageHaveAnOrder(t *testing.T) {
	t.Parallel()
	export := exportData(t)
	for _, p := range packages(t) {
		back := backward(references(t, p, export), p.GoFiles)
		if len(back) > backwardMost {
			t.Errorf("%s has %d backward references between its files, and %d are the most: split it by job\n%s", p.ImportPath, len(back), backwardMost, strings.Join(back, "\n"))
		}
	}
}

// exportData are the files with the types of all packages, by import path.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", "./cmd/...", "./client/...", "./internal/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := make(map[string]string)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
}

// usesOf are the names that one file uses of another.
type usesOf map[string]map[string]map[types.Object]bool

func references(t *testing.T, p pkg, export map[string]string) usesOf {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	open := func(path string) (io.ReadCloser, error) {
		if export[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(export[path])
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	check := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
	checked, err := check.Check(p.ImportPath, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	uses := make(usesOf)
	for id, o := range info.Uses {
		method, isFunc := o.(*types.Func)
		if o.Pkg() != checked || o.Parent() != checked.Scope() && !(isFunc && method.Signature().Recv() != nil) {
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(o.Pos()).Filename)
		if uses[from] == nil {
			uses[from] = make(map[string]map[types.Object]bool)
		}
		if uses[from][to] == nil {
			uses[from][to] = make(map[types.Object]bool)
		}
		uses[from][to][o] = true
	}
	return uses
}

// backward returns the references that point to a later file, in an order that moving one
// file does not improve.
func backward(uses usesOf, files []string) (back []string) {
	order := slices.Sorted(slices.Values(files))
	for improved := true; improved; {
		improved = false
		for i := range order {
			if at := better(uses, order, i); at != i {
				file := order[i]
				order = slices.Insert(slices.Delete(order, i, i+1), at, file)
				improved = true
			}
		}
	}
	for i, file := range order {
		for _, later := range order[i+1:] {
			for name := range uses[file][later] {
				back = append(back, file+" uses "+name.Name()+" of "+later)
			}
		}
	}
	return back
}

// better returns the place of a file that saves the most backward references.
func better(uses usesOf, order []string, i int) int {
	best, least := i, 0
	try := func(from, to, step, sign int) {
		for j, saved := from, 0; j != to; j += step {
			saved += sign * (len(uses[order[i]][order[j]]) - len(uses[order[j]][order[i]]))
			if saved < least {
				best, least = j, saved
			}
		}
	}
	try(i-1, -1, -1, 1)
	try(i+1, len(order), 1, -1)
	return best
}
