package doorward_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// shared are the functions and variables of net/http whose requests http.DefaultTransport carries.
var shared = map[string]bool{"Get": true, "Head": true, "Post": true, "PostForm": true, "DefaultClient": true, "DefaultTransport": true}

// TestTestsHaveATransportOfTheirOwn: the requests of tests do not use http.DefaultTransport.
// httptest.Server.Close closes its idle connections, and with one of them the request of a test
// that runs in parallel fails.
func TestTestsHaveATransportOfTheirOwn(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist): // tests make and remove directories
			return err
		case err == nil && d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case err != nil || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, at := range sharesTransport(file) {
			t.Errorf("%s uses http.DefaultTransport: use doortest.Client", files.Position(at))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sharesTransport returns where a file uses http.DefaultTransport, itself or through a client.
func sharesTransport(file *ast.File) (all []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "http" && shared[n.Sel.Name] {
				all = append(all, n.Pos())
			}
		case *ast.CompositeLit:
			if isClient(n.Type) && !names(n, "Transport") {
				all = append(all, n.Pos())
			}
		}
		return true
	})
	return all
}

// isClient reports whether an expression is the type http.Client.
func isClient(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Client" {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "http"
}

// names reports whether a literal of a struct sets a field.
func names(lit *ast.CompositeLit, field string) bool {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == field {
				return true
			}
		}
	}
	return false
}
