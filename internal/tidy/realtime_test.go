package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// unmarkedRealTime finds tests that require a limit of elapsed time but carry no mark. tools/test
// may run only marked tests again, and the mark shows a reader which tests may fail on a busy
// machine. A limit called patience is not such a requirement: it only ends a test that would hang.
func unmarkedRealTime(t *tree) (findings []string) {
	for _, f := range t.files {
		clock := f.importName("time")
		if !f.test || clock == "" || f.importsSynctest() {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "Test") || invokes(fn, "rttest", "RealTime") {
				continue
			}
			if at := comparesElapsed(fn, clock); at.IsValid() {
				findings = append(findings,
					fmt.Sprintf("%s: %s compares elapsed time: mark it with rttest.RealTime, or let it wait for a "+
						"condition", t.at(at), fn.Name.Name))
			}
		}
	}
	return findings
}

// importsSynctest reports whether the file's tests run on virtual time.
func (f *file) importsSynctest() bool { return f.importName("testing/synctest") != "" }

func invokes(n ast.Node, pkg, name string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isSelector(call.Fun, pkg, name)
		return !found
	})
	return found
}

func isSelector(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// comparesElapsed returns the place where the function requires that time.Since, or a variable
// assigned from it, is below a limit.
func comparesElapsed(fn *ast.FuncDecl, clock string) (at token.Pos) {
	elapsed := map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != 1 || !invokes(assign.Rhs[0], clock, "Since") {
			return true
		}
		if id, ok := assign.Lhs[0].(*ast.Ident); ok {
			elapsed[id.Name] = true
		}
		return true
	})
	ast.Inspect(fn, func(n ast.Node) bool {
		cmp, ok := n.(*ast.BinaryExpr)
		if !ok || at.IsValid() {
			return !at.IsValid()
		}
		took, bound := cmp.X, cmp.Y
		switch cmp.Op {
		case token.LSS, token.LEQ:
			took, bound = bound, took
		case token.GTR, token.GEQ:
		default:
			return true
		}
		if isElapsed(took, clock, elapsed) && !isPatience(bound) {
			at = cmp.Pos()
		}
		return true
	})
	return at
}

func isElapsed(e ast.Expr, clock string, elapsed map[string]bool) bool {
	id, ok := e.(*ast.Ident)
	return ok && elapsed[id.Name] || invokes(e, clock, "Since")
}

// isPatience reports whether e only ends a test that would hang, and measures
// nothing.
func isPatience(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "patience"
	case *ast.SelectorExpr:
		return e.Sel.Name == "Patience"
	}
	return false
}

// unexplainedSleeps finds sleeps in tests without a comment on their line or the line before. An
// unexplained sleep is a guess about the time that other code takes.
func unexplainedSleeps(t *tree) (findings []string) {
	for _, f := range t.files {
		clock := f.importName("time")
		if !f.test || clock == "" || f.importsSynctest() {
			continue
		}
		explained := map[int]bool{}
		for _, group := range f.ast.Comments {
			end := t.line(group.End())
			explained[end], explained[end+1] = true, true
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && isSelector(call.Fun, clock, "Sleep") && !explained[t.line(call.Pos())] {
				findings = append(findings, t.at(call.Pos())+
					": a sleep without a reason: wait for a condition (rttest.Eventually), use virtual time, or say "+
					"why in a comment")
			}
			return true
		})
	}
	return findings
}
