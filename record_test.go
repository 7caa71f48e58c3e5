package doorward_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unrecorded are the functions that write to the store without a record (store.DB.Write),
// and the reason why the write is no act of a caller.
var unrecorded = map[string]string{
	"mail.mark":      "Open enters the node; Touch says that a session lives",
	"library.remove": "deliveries are counted, and have their records",
	"library.flush":  "deliveries are counted, and have their records",
	"library.prune":  "deliveries are counted, and have their records",
	"session.tidy":   "rows of sessions whose end was recorded 30 days ago",
}

// owned are the exported functions that act without a caller. Their records are
// made by the recorder that Open demands.
var owned = map[string]string{
	"mail.End":            "Options.Upkeep",
	"mail.Sweep":          "Options.Upkeep",
	"mail.ForgetSessions": "Options.Upkeep",
	"library.Run":         "Options.Entered",
	"session.Open":        "Options.Record",
	"session.Run":         "Options.Record",
	"mail.Open":           "mark alone",
	"mail.Touch":          "mark alone",
	"library.Close":       "counts alone",
	"library.Deliveries":  "counts alone",
	"library.Delivered":   "counts alone",
	"library.Recent":      "counts alone",
}

// recorders are the types of the parameters that make a record.
var recorders = []string{"mail.Note", "session.Note", "library.Note", "library.Recorder"}

// TestExportedStoreWritesDemandARecorder follows the calls inside mail, session and library
// to the store. An exported function that reaches a write has a recorder as a parameter, or
// is one of owned. A function that calls store.DB.Write is one of unrecorded; store.DB.Act
// fails without a record.
func TestExportedStoreWritesDemandARecorder(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range []string{"messaging/mail", "instructions/session", "instructions/library"} {
		for _, f := range functions(t, name) {
			full := path.Base(name) + "." + f.name()
			direct := f.uses["(*"+module+"internal/base/store.DB).Write"]
			if direct && unrecorded[full] == "" {
				t.Errorf("%s writes to the store without a record: use Act", full)
			}
			reaches := f.reaches["(*"+module+"internal/base/store.DB).Write"] || f.reaches["(*"+module+"internal/base/store.DB).Act"]
			if !f.obj.Exported() || !reaches {
				seen[full] = seen[full] || direct
				continue
			}
			seen[full] = true
			if !f.demandsRecorder() && owned[full] == "" {
				t.Errorf("%s changes the store and demands no recorder", full)
			}
		}
	}
	for _, list := range []map[string]string{unrecorded, owned} {
		for full := range list {
			if !seen[full] {
				t.Errorf("%s does not write to the store: it is in the list for nothing", full)
			}
		}
	}
}

// function is a declared function of a package, with what it uses and reaches.
type function struct {
	obj           *types.Func
	uses, reaches map[string]bool
}

// name is that of the function, without its receiver.
func (f *function) name() string { return f.obj.Name() }

func (f *function) demandsRecorder() bool {
	params := f.obj.Signature().Params()
	for i := range params.Len() {
		typ, _, _ := strings.Cut(types.TypeString(params.At(i).Type(), (*types.Package).Name), "[")
		if slices.Contains(recorders, typ) {
			return true
		}
	}
	return false
}

// functions returns those of a package, with everything that their calls inside it reach.
func functions(t *testing.T, name string) []*function {
	t.Helper()
	files, info, fset := source(t, "internal/"+name)
	pkg := &types.Config{Importer: importer.ForCompiler(fset, "gc", exports(t, "./internal/"+name))}
	if _, err := pkg.Check(module+"internal/"+name, fset, files, info); err != nil {
		t.Fatal(err)
	}
	byName := map[string]*function{}
	var all []*function
	for _, file := range files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			f := &function{obj: info.Defs[decl.Name].(*types.Func), uses: map[string]bool{}, reaches: map[string]bool{}}
			ast.Inspect(decl, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if used, ok := info.Uses[id].(*types.Func); ok {
						f.uses[used.Origin().FullName()] = true
					}
				}
				return true
			})
			byName[f.obj.FullName()], all = f, append(all, f)
		}
	}
	for _, f := range all {
		f.reach(f, byName)
	}
	return all
}

func (f *function) reach(from *function, all map[string]*function) {
	for used := range from.uses {
		if f.reaches[used] {
			continue
		}
		f.reaches[used] = true
		if next := all[used]; next != nil {
			f.reach(next, all)
		}
	}
}

// source parses the files of a package that are built here.
func source(t *testing.T, dir string) ([]*ast.File, *types.Info, *token.FileSet) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, p := range packages(t) {
		if p.ImportPath != dir {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
	}
	return files, &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}, fset
}

// exports returns a function that opens the export data of an import of a package.
func exports(t *testing.T, pkg string) func(string) (io.ReadCloser, error) {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", pkg).Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}
