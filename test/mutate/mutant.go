package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// mutant is one change of an operator.
type mutant struct {
	kind  string
	where token.Position
	op    token.Token // the original operator
	to    token.Token // the operator of the mutant
	fixed bool        // in a constant declaration: it needs a separate build
}

func (m mutant) String() string {
	return fmt.Sprintf("%s at %s:%d:%d: %s becomes %s", m.kind, base(m.where.Filename), m.where.Line, m.where.Column, m.op, m.to)
}

var (
	boundaries = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	negations  = map[token.Token]token.Token{token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR}
	arithmetic = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL}
	logic      = map[token.Token]token.Token{token.LAND: token.LOR, token.LOR: token.LAND}
)

// schema rewrites one file so that it contains all its mutants.
type schema struct {
	fset   *token.FileSet
	info   *types.Info
	pkg    *types.Package
	file   *token.File
	edits  edits
	all    *[]mutant
	consts int // number of constant declarations and array types around the node
}

// add makes a mutant and returns its number, which is above zero.
func (s *schema) add(kind string, at token.Pos, op, to token.Token) int {
	*s.all = append(*s.all, mutant{kind, s.fset.Position(at), op, to, s.consts > 0})
	return len(*s.all)
}

// walk visits a node and its descendants.
func (s *schema) walk(n ast.Node) {
	if n == nil {
		return
	}
	closing := s.mutate(n)
	inner := fixes(n)
	if inner {
		s.consts++
	}
	children(n, s.walk)
	if inner {
		s.consts--
	}
	if closing != "" {
		s.edits.close(s.file.Offset(n.End()), closing)
	}
}

// fixes reports whether Go requires constants inside n: a declaration of constants, or an array
// type with its length.
func fixes(n ast.Node) bool {
	d, ok := n.(*ast.GenDecl)
	_, array := n.(*ast.ArrayType)
	return ok && d.Tok == token.CONST || array
}

func children(n ast.Node, visit func(ast.Node)) {
	ast.Inspect(n, func(c ast.Node) bool {
		if c == n {
			return true
		}
		if c != nil {
			visit(c)
		}
		return false
	})
}

// mutate inserts the start of the mutated call before n and returns the text to insert after n.
func (s *schema) mutate(n ast.Node) (closing string) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return s.binary(n)
	case *ast.UnaryExpr:
		return s.negative(n)
	case *ast.IncDecStmt:
		s.step(n)
	}
	return ""
}

func (s *schema) binary(n *ast.BinaryExpr) string {
	start, op := s.file.Offset(n.Pos()), s.file.Offset(n.OpPos)
	var opening string
	switch {
	case logic[n.Op] != 0:
		id := s.add("INVERT_LOGICAL", n.OpPos, n.Op, logic[n.Op])
		if s.consts > 0 {
			return ""
		}
		s.edits.open(start, fmt.Sprintf("mutLogic(%d, %t, ", id, n.Op == token.LAND))
		s.edits.replace(op, 2, ",")
		s.edits.open(s.file.Offset(n.Y.Pos()), "func() bool { return ")
		return " })"
	case negations[n.Op] != 0:
		id := s.add("CONDITIONALS_NEGATION", n.OpPos, n.Op, negations[n.Op])
		if to := boundaries[n.Op]; to != 0 {
			edge := s.add("CONDITIONALS_BOUNDARY", n.OpPos, n.Op, to)
			if s.consts > 0 {
				return ""
			}
			s.edits.open(start, fmt.Sprintf("mutOrder(%d, %d, %q, ", id, edge, n.Op))
			s.edits.replace(op, len(n.Op.String()), ",")
			return ")"
		}
		opening = fmt.Sprintf("mutNot(%d, ", id)
	case arithmetic[n.Op] != 0 && isInteger(s.info.TypeOf(n)):
		id := s.add("ARITHMETIC_BASE", n.OpPos, n.Op, arithmetic[n.Op])
		if s.consts > 0 {
			return ""
		}
		opening = fmt.Sprintf("mutMath%s(%d, %q, ", s.explicit(n), id, n.Op)
		s.edits.replace(op, 1, ",")
	}
	if opening == "" || s.consts > 0 {
		return ""
	}
	s.edits.open(start, opening)
	return ")"
}

func (s *schema) negative(n *ast.UnaryExpr) string {
	if n.Op != token.SUB || !isInteger(s.info.TypeOf(n)) {
		return ""
	}
	id := s.add("INVERT_NEGATIVES", n.OpPos, n.Op, token.ADD)
	if s.consts > 0 {
		return ""
	}
	s.edits.replace(s.file.Offset(n.OpPos), 1, fmt.Sprintf("mutMinus%s(%d, ", s.explicit(n), id))
	return ")"
}

func (s *schema) step(n *ast.IncDecStmt) {
	to := token.DEC
	if n.Tok == token.DEC {
		to = token.INC
	}
	id := s.add("INCREMENT_DECREMENT", n.TokPos, n.Tok, to)
	s.edits.open(s.file.Offset(n.Pos()), fmt.Sprintf("mutStep(%d, %t, &", id, n.Tok == token.INC))
	s.edits.replace(s.file.Offset(n.TokPos), 2, ")")
}

// explicit returns the type argument for a constant expression, whose operands do not show its
// type, and "" for any other.
func (s *schema) explicit(e ast.Expr) string {
	tv := s.info.Types[e]
	if tv.Value == nil {
		return ""
	}
	return "[" + types.TypeString(types.Default(tv.Type), types.RelativeTo(s.pkg)) + "]"
}

func isInteger(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsInteger != 0
}
