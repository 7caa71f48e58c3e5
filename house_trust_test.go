package doorward_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// trustMost is the number of lines of code of internal/trust, as it is built here. A
// reviewer of decisions and records reads the trust base as a whole. The number is lowered
// when internal/trust shrinks, and stays at or below 4,500.
const trustMost = 4498

// TestTheTrustBaseIsSmall: internal/trust has exactly trustMost lines of code. Comments and
// blank lines are not counted.
func TestTheTrustBaseIsSmall(t *testing.T) {
	t.Parallel()
	lines := 0
	trustFiles(t, func(path string, text []byte) { lines += codeLines(path, text) })
	if lines != trustMost {
		t.Errorf("internal/trust has %d lines of code, and trustMost says %d: lower the number, or move out what does not decide or record", lines, trustMost)
	}
}

// TestTrustFilesStateTheirInvariant: each file of internal/trust and of
// internal/downstream/attest states its invariant in a comment before its first
// declaration.
func TestTrustFilesStateTheirInvariant(t *testing.T) {
	t.Parallel()
	stated := func(path string, text []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool {
			return c.Pos() < firstDeclaration(file) && strings.Contains(c.Text(), "Invariant")
		}) {
			t.Errorf("%s: its first comment states no invariant", path)
		}
	}
	trustFiles(t, stated)
	if filesOf(t, "internal/downstream/attest", stated) == 0 {
		t.Error("internal/downstream/attest has no files: was it moved?")
	}
}

// firstDeclaration is the position of the first declaration other than an import.
func firstDeclaration(file *ast.File) token.Pos {
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
			return d.Pos()
		}
	}
	return file.FileEnd
}

func trustFiles(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	if n := filesOf(t, "internal/trust/", visit); n < 40 {
		t.Errorf("internal/trust has %d files, want at least 40: was it moved?", n)
	}
}

// filesOf visits the files of the packages whose paths begin with prefix, and counts them.
func filesOf(t *testing.T, prefix string, visit func(path string, text []byte)) (n int) {
	t.Helper()
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.ImportPath, prefix) {
			continue
		}
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(p.Dir + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			visit(strings.TrimPrefix(p.ImportPath, "internal/")+"/"+name, text)
			n++
		}
	}
	return n
}

// codeLines counts the lines of a file on which a token stands.
func codeLines(path string, text []byte) int {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile(path, -1, len(text)), text, nil, 0)
	on := make(map[int]bool)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(on)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // the end of a line, not a token of it
		}
		first := files.Position(pos).Line
		for i := range bytes.Count([]byte(lit), []byte("\n")) + 1 {
			on[first+i] = true
		}
	}
}

// gateVerbs are the ways in which an act meets the gate. Everything else that
// gate exports answers a question, makes a value or sets the gate up.
var gateVerbs = []string{"Enter", "Record", "Refuse", "Leave", "Allows"}

// gateWorks are the functions by which gate decides, charges and records.
var gateWorks = []string{"Append", "AppendGroup", "Later", "Decide", "write", "recorded", "refuse", "decide", "enterEach", "charge"}

// TestTheGateHasFiveVerbs: no other exported function of gate decides, charges or
// records.
func TestTheGateHasFiveVerbs(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	trustFiles(t, func(path string, text []byte) {
		if !strings.HasPrefix(path, "trust/gate/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			if work := worksOf(f); len(work) > 0 && !slices.Contains(gateVerbs, f.Name.Name) {
				t.Errorf("%s: %s calls %v, and only %v may", path, f.Name.Name, work, gateVerbs)
			} else if len(work) > 0 {
				found[f.Name.Name] = true
			}
		}
	})
	for _, verb := range gateVerbs {
		if !found[verb] {
			t.Errorf("found no exported %s that decides or records: is it still a verb of the gate?", verb)
		}
	}
}

// worksOf lists the calls of gateWorks in a function.
func worksOf(f *ast.FuncDecl) (work []string) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			if s, ok := c.Fun.(*ast.SelectorExpr); ok && slices.Contains(gateWorks, s.Sel.Name) {
				work = append(work, s.Sel.Name)
			}
		}
		return true
	})
	return work
}
