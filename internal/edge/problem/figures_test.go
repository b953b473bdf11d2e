package problem_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elsewhere are the packages whose faults no server answers with: the command line, workers,
// and what only tests and development run.
var elsewhere = []string{"cli", "devkit", "proof", "worker"}

// TestFigures compares the members that problems carry beside the standard ones with the page,
// in both directions.
func TestFigures(t *testing.T) {
	t.Parallel()
	section := after(t, page(t), "\n## The figures\n")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| \\S").FindAllStringSubmatch(section, -1) {
		require.False(t, documented[row[1]], "%s is documented twice", row[1])
		documented[row[1]] = true
	}
	used := map[string]bool{}
	inspect(t, func(file string, n ast.Node) {
		if name, ok := firstText(n, "Value"); ok {
			require.True(t, documented[name], "%s: a problem has the member %q, which docs/errors.md does not explain", file, name)
			used[name] = true
		}
	})
	require.Greater(t, len(used), 10)
	for name := range documented {
		require.True(t, used[name], "docs/errors.md explains %q, which no problem has", name)
	}
}

// TestCodesHaveOnePlace sees that no code is made up where it is used: the page is compared
// with two files, and they must be all.
func TestCodesHaveOnePlace(t *testing.T) {
	t.Parallel()
	inspect(t, func(file string, n ast.Node) {
		if code, ok := firstText(n, "Code"); ok {
			t.Errorf("%s: fault.Code(%q) is written where it is used", file, code)
		}
		if strings.HasSuffix(file, "fault/fault.go") || strings.HasSuffix(file, "problem/problem.go") {
			return
		}
		if spec, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := spec.Type.(*ast.SelectorExpr); ok && typ.Sel.Name == "Code" && exprName(typ.X) == "fault" {
				t.Errorf("%s: declares the code %s", file, spec.Names[0].Name)
			}
		}
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if kind, ok := strings.CutPrefix(strings.Trim(literal.Value, "`\""), "/errors/"); ok && kind != "" {
				require.Contains(t, page(t), "| `/errors/"+kind+"` |", file)
			}
		}
	})
	for _, code := range constantsIn(t, "../../../client/problem.go") {
		require.Contains(t, page(t), "\n| `"+code+"` | `/errors/", "package client knows %s", code)
	}
}

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/errors.md")
	require.NoError(t, err)
	return string(text)
}

// after is what follows a heading, until the next one.
func after(t *testing.T, text, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(text, heading)
	require.True(t, found, "no section %q", strings.TrimSpace(heading))
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// inspect visits everything that is written in the packages that a server answers from.
func inspect(t *testing.T, visit func(file string, n ast.Node)) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(path), "../../"), "/")
		switch {
		case entry.IsDir() && slices.Contains(elsewhere, first), entry.IsDir() && entry.Name() == "testdata":
			return fs.SkipDir
		case entry.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			visit(path, n)
			return true
		})
		return nil
	})
	require.NoError(t, err)
}

// firstText is the text that fault.NAME is called with, if a node is such a call.
func firstText(n ast.Node, name string) (string, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || called.Sel.Name != name || exprName(called.X) != "fault" {
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

func exprName(e ast.Expr) string {
	if name, ok := e.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// constantsIn reads the untyped text constants of a file that are codes.
func constantsIn(t *testing.T, file string) (found []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	for _, declaration := range parsed.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			if value, ok := spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
				found = append(found, strings.Trim(value.Value, `"`))
			}
		}
	}
	require.Greater(t, len(found), 10)
	return found
}
