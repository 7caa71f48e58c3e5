package audit_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// helperEnv makes this test binary one of the helpers instead of the tests.
const helperEnv = "DOORWARD_AUDIT_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "":
		os.Exit(m.Run())
	case "writer":
		helperWriter(os.Args[1], os.Args[2])
	case "limited":
		helperLimited(os.Args[1])
	case "holder":
		helperHolder(os.Args[1])
	}
	os.Exit(2)
}

// helper is this test binary run as the helper name; it is killed, by its own
// id, when the test ends.
func helper(t *testing.T, name string, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // its end tells a helper to stop
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

func newKey(t testing.TB) *audit.Key {
	t.Helper()
	k, err := auditkey.LoadOrCreate(filepath.Join(t.TempDir(), "audit.key"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(t testing.TB, dir string, o audit.Options) *audit.Log {
	t.Helper()
	l, err := audit.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustAppend(t testing.TB, l *audit.Log, r *audit.Record) uint64 {
	t.Helper()
	seq, err := l.Append(r)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func mustClose(t testing.TB, l *audit.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// decision is a record of the usual kind about resource.
func decision(resource string) *audit.Record {
	return &audit.Record{
		Kind: audit.Decision, Source: "gate", Action: "tools/call", Resource: resource, Decision: audit.Allow, Rule: "default",
		Who: principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested}),
	}
}

// entry is a line as encoding/json reads it.
type entry struct {
	Seq       uint64 `json:"seq"`
	Time      string `json:"time"`
	Kind      string `json:"kind"`
	Source    string `json:"source"`
	Principal string `json:"principal"`
	Facts     []fact `json:"facts"`
	Session   string `json:"session"`
	Action    string `json:"action"`
	Resource  string `json:"resource"`
	Decision  string `json:"decision"`
	Rule      string `json:"rule"`
	Result    string `json:"result"`
	Bytes     int64  `json:"bytes"`
	Count     int64  `json:"count"`
	Reason    string `json:"reason"`
	Ref       uint64 `json:"ref"`
	As        uint64 `json:"as"`
	Prev      string `json:"prev"`
	Hash      string `json:"hash"`
}

// fact is a fact of the caller in a line.
type fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Grade string `json:"grade"`
}

func parse(t testing.TB, line []byte) (e entry) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return e
}

// lines gives every line of every segment in dir.
func lines(t testing.TB, dir string) (all [][]byte) {
	t.Helper()
	for _, name := range segmentNames(t, dir) {
		b := readFile(t, filepath.Join(dir, name))
		for line := range bytes.Lines(b) {
			all = append(all, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return all
}

// shown gives the lines with their callers.
func shown(t testing.TB, dir string) (all [][]byte) {
	t.Helper()
	var s auditlog.Showing
	for _, line := range lines(t, dir) {
		all = append(all, s.Show(line))
	}
	return all
}

func entries(t testing.TB, dir string) (all []entry) {
	t.Helper()
	for _, line := range shown(t, dir) {
		all = append(all, parse(t, line))
	}
	return all
}

// short is a decision whose caller has a name and no facts, so that all lines have
// one length.
func short(resource string) *audit.Record {
	r := decision(resource)
	r.Who = principal.New("uid:1000")
	return r
}

func segmentNames(t testing.TB, dir string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyDir copies the log in dir as it is at this moment to a new directory.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range append(segmentNames(t, dir), "checkpoints", "begin") {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(to, name), b)
	}
	return to
}

func verify(t testing.TB, dir string, k *audit.Key) auditlog.Report {
	t.Helper()
	r, err := auditlog.Verify(dir, k.Verifier)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustVerify fails unless the log is whole and has that many records.
func mustVerify(t testing.TB, dir string, k *audit.Key, records uint64) auditlog.Report {
	t.Helper()
	r := verify(t, dir, k)
	if !r.OK || r.FirstBad != 0 || r.Reason != "" || r.Records != records {
		t.Fatalf("verify: %+v, want ok and %d records", r, records)
	}
	return r
}

func actions(es []entry) string {
	var s []string
	for _, e := range es {
		s = append(s, e.Action)
	}
	return strings.Join(s, " ")
}
