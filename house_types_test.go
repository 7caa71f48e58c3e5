package doorward_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// methodsMost is the most methods of one type. A type with more has several
// jobs, and each deserves a type of its own.
const methodsMost = 30

// TestNoTypeHasTooManyMethods counts the methods that a type declares and those
// that it takes over from embedded types of its own package.
func TestNoTypeHasTooManyMethods(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		types := typesOf(t, p)
		for name := range types {
			if n := len(types.methods(name)); n > methodsMost {
				t.Errorf("%s.%s has %d methods, and %d are the most: split it by job", p.ImportPath, name, n, methodsMost)
			}
		}
	}
}

// declared is what one type of a package brings with it.
type declared struct {
	methods  []string
	embedded []string // types of the same package
}

// declarations are the types of one package, by name.
type declarations map[string]*declared

func (d declarations) of(name string) *declared {
	if d[name] == nil {
		d[name] = new(declared)
	}
	return d[name]
}

// methods lists the methods of a type by name, each once.
func (d declarations) methods(name string) []string {
	found := make(map[string]bool)
	d.collect(name, found, make(map[string]bool))
	var all []string
	for m := range found {
		all = append(all, m)
	}
	slices.Sort(all)
	return all
}

func (d declarations) collect(name string, found, seen map[string]bool) {
	if d[name] == nil || seen[name] {
		return
	}
	seen[name] = true
	for _, m := range d[name].methods {
		found[m] = true
	}
	for _, e := range d[name].embedded {
		d.collect(e, found, seen)
	}
}

func typesOf(t *testing.T, p pkg) declarations {
	t.Helper()
	all := make(declarations)
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), p.Dir+"/"+name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					on := all.of(typeName(d.Recv.List[0].Type))
					on.methods = append(on.methods, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					addEmbedded(all, s)
				}
			}
		}
	}
	return all
}

func addEmbedded(all declarations, s ast.Spec) {
	spec, ok := s.(*ast.TypeSpec)
	if !ok {
		return
	}
	of, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range of.Fields.List {
		if len(f.Names) == 0 {
			if e := typeName(f.Type); e != "" {
				all.of(spec.Name.Name).embedded = append(all.of(spec.Name.Name).embedded, e)
			}
		}
	}
}

// typeName is the name of a type of the same package; empty: a type of another package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return ""
}
