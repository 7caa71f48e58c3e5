// Package doorward_test checks rules about the code of the repository: which packages a
// package may import, and which packages alone may use certain functions. Each rule states
// its reason.
package doorward_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/doorward/doorward/"

// mayImport lists the internal packages that each package may import; "*" allows all.
// Imports point one way: base and trust are used by the others, and daemon uses the others.
// A name that ends in a slash stands for all packages below it.
var mayImport = map[string]string{
	"internal/base/durable":   "",
	"internal/base/sse":       "",
	"internal/base/plainyaml": "",
	"internal/base/secret":    "",
	"internal/base/store":     "base/durable",
	"internal/base/protocol":  "",
	"internal/base/lifetime":  "",
	"internal/base/auditlog":  "trust/audit base/durable", // it reads what audit writes
	"internal/base/plaintext": "trust/visible",            // it cleans what visible calls hidden
	"internal/base/rawjson":   "trust/wire",               // it reads and changes members of what wire accepts

	"internal/trust/visible":   "",
	"internal/trust/lookalike": "trust/visible",
	"internal/trust/principal": "trust/visible",
	"internal/trust/wire":      "",
	"internal/trust/policy":    "trust/principal trust/lookalike trust/visible",
	"internal/trust/audit":     "trust/principal base/durable",
	"internal/trust/gate":      "trust/principal trust/policy trust/audit trust/wire",

	"internal/downstream/attest":       "",
	"internal/downstream/peer":         "downstream/attest base/durable",
	"internal/downstream/listen":       "downstream/attest downstream/peer base/plaintext base/durable",
	"internal/downstream/credential":   "downstream/peer base/durable",
	"internal/downstream/authn":        "downstream/attest trust/visible downstream/peer trust/principal base/",
	"internal/downstream/front":        "base/lifetime base/protocol base/rawjson base/sse trust/wire trust/principal",
	"internal/downstream/sessionstore": "",

	"internal/upstream":               "base/lifetime base/protocol base/rawjson base/sse upstream/egress upstream/process trust/wire",
	"internal/upstream/builtin":       "base/protocol base/rawjson upstream trust/wire",
	"internal/upstream/egress":        "base/secret",
	"internal/upstream/pin":           "trust/visible base/rawjson downstream/peer trust/wire base/durable trust/lookalike base/plaintext",
	"internal/upstream/process":       "base/secret base/plaintext",
	"internal/upstream/process/child": "upstream/process",
	"internal/upstream/process/image": "",
	"internal/upstream/scan":          "base/rawjson trust/wire base/durable",
	"internal/upstream/signin":        "upstream/egress downstream/peer base/secret base/durable",

	"internal/relay":             "base/lifetime base/plaintext base/protocol base/rawjson relay/ downstream/front upstream upstream/pin upstream/scan trust/",
	"internal/relay/content":     "base/protocol base/rawjson relay/failure relay/listing relay/question trust/wire upstream upstream/scan",
	"internal/relay/era":         "base/protocol base/rawjson downstream/front relay/listing trust/wire",
	"internal/relay/failure":     "downstream/front trust/gate trust/wire upstream",
	"internal/relay/listing":     "base/protocol base/rawjson downstream/front relay/naming relay/paramheader relay/resolve trust/ upstream/pin",
	"internal/relay/naming":      "base/protocol base/rawjson relay/resolve trust/wire upstream",
	"internal/relay/offer":       "base/rawjson downstream/front relay/era relay/listing relay/paramheader relay/resolve trust/wire upstream upstream/pin",
	"internal/relay/paramheader": "base/protocol base/rawjson trust/wire",
	"internal/relay/question":    "base/plaintext base/rawjson downstream/front relay/failure trust/ upstream",
	"internal/relay/seal":        "base/rawjson relay/resolve trust/principal trust/wire",
	"internal/relay/subscribe":   "base/protocol base/rawjson trust/wire",
	"internal/relay/approval":    "base/plaintext base/rawjson trust/",
	"internal/relay/resolve":     "base/rawjson trust/visible trust/wire",

	"internal/messaging/mail":  "trust/visible base/store base/plaintext",
	"internal/messaging/spawn": "trust/visible messaging/mail upstream/process downstream/peer trust/principal trust/policy base/secret base/plaintext",
	"internal/messaging/agent": "base/auditlog base/protocol base/rawjson messaging/mail messaging/spawn upstream upstream/builtin trust/ base/store base/plaintext",

	"internal/instructions/document":  "trust/visible base/plainyaml base/plaintext",
	"internal/instructions/watermark": "trust/visible base/rawjson trust/wire base/plaintext",
	"internal/instructions/library":   "instructions/document upstream/egress downstream/peer base/plaintext base/",
	"internal/instructions/session":   "trust/visible base/protocol downstream/peer trust/wire base/store base/durable base/plaintext",
	"internal/instructions/deliver":   "base/protocol base/rawjson instructions/ downstream/credential upstream upstream/builtin trust/ base/sse",

	"internal/onboard": "base/",

	"internal/daemon/auditkey":    "trust/audit base/durable",
	"internal/daemon/retain":      "base/auditlog trust/audit base/durable",
	"internal/daemon/policycheck": "trust/",
	"internal/daemon/config":      "daemon/policycheck trust/policy base/plaintext base/",
	"internal/daemon/desktop":     "upstream/process",
	"internal/daemon/admin":       "messaging/ relay/approval upstream/pin downstream/peer trust/",
	"internal/daemon/passkey":     "base/durable base/plaintext trust/audit trust/principal",
	"internal/daemon/console":     "base/auditlog base/plaintext base/rawjson daemon/admin daemon/health daemon/history daemon/passkey messaging/ instructions/ upstream/pin trust/",
	"internal/daemon/health":      "daemon/admin",
	"internal/daemon/history":     "base/auditlog trust/",
	"internal/daemon":             "*",

	"internal/daemon/notice":    "base/secret base/plaintext",
	"internal/daemon/telemetry": "relay downstream/front base/rawjson trust/wire",

	"client":       "downstream/attest base/protocol base/rawjson base/sse downstream/peer downstream/credential trust/wire",
	"cmd/doorward": "*",
}

// only lists imports and functions, and the packages that alone may use them.
var only = []struct {
	what  string // an import, or package.Function
	where string
	why   string
}{
	{"os/exec", "daemon/desktop", "process starts servers without it, and desktop what reaches the operator: a supervisor would initialise it"},
	{"golang.org/x/sys/unix", "downstream/attest downstream/peer upstream/process", "only attest, peer and process use raw system calls"},
	{"net.Listen", "downstream/listen", "only listen opens listeners: the bind table is decided there"},
	{"net.ListenTCP", "downstream/listen", "only listen opens listeners: the bind table is decided there"},
	{"net.ListenUnix", "downstream/listen", "only listen opens listeners: the bind table is decided there"},
	{"net.Dial", "", "only egress dials upstream addresses, and it judges the dialled address"},
	{"net.DialTimeout", "", "only egress dials upstream addresses, and it judges the dialled address"},
	{"net.DialTCP", "", "only egress dials upstream addresses, and it judges the dialled address"},
	{"net.Dialer", "upstream/egress client", "only egress dials upstream addresses, and client the daemon's socket"},
	{"net/http.Transport", "upstream/egress client daemon", "only egress makes transports to upstream addresses; its dialler judges them"},
	{"crypto/tls.Dial", "", "only egress dials upstream addresses, and it judges the dialled address"},
	{"crypto/tls.Dialer", "", "only egress dials upstream addresses, and it judges the dialled address"},
	{"net/http.ListenAndServe", "", "only listen opens listeners"},
	{"net/http.Get", "", "only egress dials; the default client follows redirects and proxies"},
	{"net/http.Post", "", "only egress dials; the default client follows redirects and proxies"},
	{"net/http.DefaultClient", "", "only egress dials; the default client follows redirects and proxies"},
	{"net/http.DefaultTransport", "", "only egress dials; the default transport honours HTTP_PROXY"},
	{"net/http.DefaultServeMux", "", "imports register handlers on it"},
	{module + "internal/trust/policy.Compile", "daemon/policycheck", "a file that a person wrote is checked before it decides"},
	{"os.Exit", "cmd/doorward upstream/process", "the exit status is decided in one place, and a supervisor ends before main begins"},
	{"github.com/ncruces/go-sqlite3", "base/store", "only store knows which database it is"},
	{"github.com/ncruces/go-sqlite3/driver", "base/store", "only store knows which database it is"},
	{"github.com/jackc/pgx/v5", "base/store", "only store knows which database it is"},
	{"github.com/jackc/pgx/v5/stdlib", "base/store", "only store knows which database it is"},
	{"database/sql", "base/store", "only store knows which database it is"},
	{"flag", "", "a package takes options, not flags; commands use cobra"},
	{"github.com/spf13/cobra", "cmd/doorward", "a package takes options, not flags"},
	{"github.com/spf13/pflag", "cmd/doorward", "a package takes options, not flags"},
	{"net/http/pprof", "", "importing it registers handlers"},
}

type pkg struct {
	Dir, ImportPath string
	Imports         []string
	GoFiles         []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=Dir,ImportPath,Imports,GoFiles", "./cmd/...", "./client/...", "./internal/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		all = append(all, p)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		allowed, known := mayImport[p.ImportPath]
		if !known {
			t.Errorf("%s is not in mayImport: add it there, or move its code to another package", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			name, ours := strings.CutPrefix(i, module)
			if !ours || allowed == "*" {
				continue
			}
			if !has(allowed, strings.TrimPrefix(name, "internal/")) {
				t.Errorf("%s imports %s, and mayImport allows it only %q", p.ImportPath, name, allowed)
			}
		}
	}
}

func TestRestrictedFunctionsAreUsedInTheirPackagesOnly(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		used := uses(t, p)
		for _, rule := range only {
			if used[rule.what] && !has(rule.where, strings.TrimPrefix(p.ImportPath, "internal/")) {
				t.Errorf("%s uses %s: %s", p.ImportPath, rule.what, rule.why)
			}
		}
	}
}

// version is the last element of the import path of a later major version.
var version = regexp.MustCompile(`/v[0-9]+$`)

// uses lists what a package imports and which functions of imported packages
// it names.
func uses(t *testing.T, p pkg) map[string]bool {
	t.Helper()
	used := make(map[string]bool)
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), p.Dir+"/"+name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		paths := make(map[string]string)
		for _, i := range file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			used[path] = true
			switch {
			case i.Name == nil:
				plain := version.ReplaceAllString(path, "")
				paths[plain[strings.LastIndex(plain, "/")+1:]] = path
			case i.Name.Name == ".":
				t.Errorf("%s/%s imports %s without a name: its functions cannot be told from the package's own", p.ImportPath, name, path)
			default:
				paths[i.Name.Name] = path
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && paths[x.Name] != "" {
					used[paths[x.Name]+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	return used
}

// callsAtImport reports whether a declaration is `var _ = f()`.
func callsAtImport(d ast.Decl) bool {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.VAR {
		return false
	}
	return slices.ContainsFunc(g.Specs, func(s ast.Spec) bool {
		v := s.(*ast.ValueSpec)
		if len(v.Values) != 1 || v.Names[0].Name != "_" {
			return false
		}
		call, ok := v.Values[0].(*ast.CallExpr)
		if !ok {
			return false
		}
		_, conversion := call.Fun.(*ast.ParenExpr)
		return !conversion
	})
}

func TestNoInitAndNoUnfinishedWords(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), p.Dir+"/"+name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
					t.Errorf("%s/%s has an init: nothing happens by being imported", p.ImportPath, name)
				}
				if callsAtImport(d) && p.ImportPath+"/"+name != "internal/upstream/process/early.go" {
					t.Errorf("%s/%s calls a function in a blank variable declaration: importing a package must have no side effects", p.ImportPath, name)
				}
			}
			for _, c := range file.Comments {
				for _, word := range []string{"TODO", "FIXME", "XXX"} {
					if strings.Contains(c.Text(), word) {
						t.Errorf("%s/%s says %s: finish it, or state the limit in words", p.ImportPath, name, word)
					}
				}
			}
		}
	}
}

func has(list, name string) bool {
	for _, f := range strings.Fields(list) {
		if f == name || strings.HasSuffix(f, "/") && strings.HasPrefix(name, f) {
			return true
		}
	}
	return false
}

// TestKeysAreReadByDurableAlone: a file that names a key file does not read or write files
// through os. The package durable reads keys, and checks their owner and permissions.
func TestKeysAreReadByDurableAlone(t *testing.T) {
	t.Parallel()
	key := regexp.MustCompile(`^"[a-z]+\.keys?"$`)
	found := 0
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), p.Dir+"/"+name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			names, reads := false, ""
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					names = names || key.MatchString(n.Value)
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "os" && has("ReadFile Open OpenFile WriteFile Create", n.Sel.Name) {
						reads = n.Sel.Name
					}
				}
				return true
			})
			if names {
				found++
			}
			if names && reads != "" {
				t.Errorf("%s/%s names a key file and calls os.%s: durable.Secret reads and makes keys", p.ImportPath, name, reads)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d files name a key, want at least 4: does the pattern of this test still match?", found)
	}
}
