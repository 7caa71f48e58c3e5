package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
)

// examples are the configurations of examples/ and of the documentation, by path.
func examples(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(paths) < 4 {
		t.Fatalf("%d examples, %v", len(paths), err)
	}
	all := map[string]string{"testdata/manual.yaml": manual(t)}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(b)
	}
	for i, block := range yamlBlocks(t) {
		all["docs/configuration.md block "+string(rune('a'+i))] = block
	}
	return all
}

// page is the documentation.
const page = "../../../docs/configuration.md"

// yamlBlocks are the configurations in the documentation.
func yamlBlocks(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, part := range strings.Split(string(b), "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

// complete are options under which every variable is set, every file is there and every entry is in the keyring.
func complete() config.Options {
	o := options()
	inner := o.Env
	o.Env = func(name string) (string, bool) {
		if v, ok := inner(name); ok {
			return v, true
		}
		return "value-of-" + name, true
	}
	o.File = func(string) (secret.Value, error) { return secret.New(password), nil }
	o.Keyring = func(string, string) (secret.Value, error) { return secret.New(password), nil }
	return o
}

func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	for path, content := range examples(t) {
		c, ps := config.Parse(path, "/etc/doorward", []byte(content), complete())
		if c == nil || len(ps) != 0 {
			t.Errorf("%s: %v", path, ps)
		}
	}
}

// The first example of the documentation is testdata/manual.yaml, which TestManualExample reads.
func TestManualExampleIsDocumented(t *testing.T) {
	t.Parallel()
	if blocks := yamlBlocks(t); len(blocks) == 0 || blocks[0] != manual(t) {
		t.Error("the first example of docs/configuration.md is not testdata/manual.yaml")
	}
}

// The quickstart file, which make run serves, is valid and names the server that make run builds.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs("../../../examples/quickstart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, ps := config.Parse(path, filepath.Dir(path), content, options())
	if c == nil || len(ps) != 0 || len(c.Servers) != 1 {
		t.Fatalf("problems: %v", ps)
	}
	notes := c.Servers["notes"]
	if want := filepath.Join(filepath.Dir(filepath.Dir(path)), "bin", "notes-server"); notes.Path != want {
		t.Errorf("the command is %s, want %s", notes.Path, want)
	}
	if len(notes.Doorward.Tools.Deny) != 1 || notes.Doorward.Tools.Deny[0] != "delete_note" {
		t.Errorf("denied: %v", notes.Doorward.Tools.Deny)
	}
	// It is also valid with the servers that are commented out.
	uncommented := strings.ReplaceAll(strings.ReplaceAll(string(content), "  # Real", "  ## Real"), "\n  # ", "\n  ")
	c, ps = config.Parse(path, filepath.Dir(path), []byte(uncommented), options())
	if c == nil || len(ps) != 0 || len(c.Servers) != 3 {
		t.Errorf("with the servers that are commented out: %v", ps)
	}
}

// schema is the JSON Schema, ready to validate with.
func schema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("reading the schema: %v", err)
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatalf("resolving the schema: %v", err)
	}
	return resolved
}

func TestSchemaAcceptsTheExamples(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for path, content := range examples(t) {
		var v any
		if err := yaml.Unmarshal([]byte(content), &v); err != nil {
			t.Errorf("%s: %v", path, err)
		} else if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, content := range []string{"{}", "agent:\nmcpServers:\n", "mcpServers: {a: {command: x, timeout: 3, doorward: {timeout: 0}}}", "listen: {http: []}"} {
		var v any
		if err := yaml.Unmarshal([]byte(content), &v); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v", content, err)
		}
	}
}

// The schema refuses errors of form, as Load does. It accepts the files whose errors only Load can find.
func TestSchemaRefusesWhatLoadRefuses(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for name, refused := range map[string]bool{
		"unknown-keys": true, "wrong-types": true, "clients": true, "listeners": true, "server-names": true,
		"not-a-mapping": true, "servers": true, "deep": false, "references": false, "nothing-to-listen-on": false,
	} {
		ar, err := txtar.ParseFile("testdata/problems/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := yaml.Unmarshal(ar.Files[0].Data, &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Validate(v); (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, one := range []string{
		`{"log": {"level": "loud"}}`, `{"limits": {"children": 0}}`, `{"limits": {"children": "5"}}`,
		`{"mcpServers": {"a": {}}}`, `{"mcpServers": {"a": {"command": "x", "url": "y"}}}`,
		`{"mcpServers": {"a__b": {"command": "x"}}}`, `{"mcpServers": {"agent": {"command": "x"}}}`,
		`{"mcpServers": {"a": {"command": "x", "doorward": {"timeout": "5"}}}}`,
		`{"mcpServers": {"a": {"command": "x", "doorward": {"timeout": 5}}}}`,
		`{"mcpServers": {"a": {"command": "x", "doorward": {"ask": {"allow": ["all"]}}}}}`,
		`{"listen": {"http": [{}]}}`, `{"listen": {"http": [{"addr": "x", "tls": {"cert": "x"}}]}}`, `{"servers": {}}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(one), &v); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err == nil {
			t.Errorf("the schema accepts %s", one)
		}
		if _, ps := parse("x.json", one); config.OK(ps) {
			t.Errorf("Load accepts %s", one)
		}
	}
}

func TestSchemaIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	first, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if again, _ := config.Schema(); string(again) != string(first) {
			t.Fatal("the schema changes")
		}
	}
}
