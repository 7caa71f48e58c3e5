package scan

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/test/doortest"
)

// scanner has the built-in rules, or those of text.
func scanner(t testing.TB, mode Mode, text string) *Scanner {
	t.Helper()
	if text == "" {
		s, err := NewLibrary(nil).Scanner(mode, "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	set, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := &Scanner{mode: mode, source: &source{}}
	s.source.set.Store(set)
	return s
}

func counts(found []Count) string {
	var out []string
	for _, c := range found {
		out = append(out, fmt.Sprintf("%s=%d", c.Rule, c.N))
	}
	return strings.Join(out, " ")
}

// Examples are put together here so that no tool takes this file for a leak.
var (
	aws    = "AKIA" + "IOSFODNN7EXAMPLE"
	github = "ghp_" + strings.Repeat("a1B2", 9)
	pem    = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\n-----END RSA " + "PRIVATE KEY-----"
	jwt    = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N"
)

func TestTheBuiltInRules(t *testing.T) {
	t.Parallel()
	s := scanner(t, Redact, "")
	for text, want := range map[string]string{
		"key " + aws + ".": "key [redacted:aws-access-key].",
		"aws_secret_access_key = " + strings.Repeat("aB3/", 10): "aws_secret_access_key = [redacted:aws-secret-key]",
		github:                             "[redacted:github-token]",
		"x " + pem + " y":                  "x [redacted:private-key] y",
		pem[:50]:                           "[redacted:private-key]",
		"glpat-" + strings.Repeat("x", 20): "[redacted:gitlab-token]",
		"xoxb-" + "123456789012-abcdef":    "[redacted:slack-token]",
		"https://hooks.slack.com/services/" + "T0/B0/" + strings.Repeat("x", 24): "https://hooks.slack.com/services/[redacted:slack-webhook]",
		"AIza" + strings.Repeat("x", 35):                                         "[redacted:google-api-key]",
		"sk-" + "proj-" + strings.Repeat("x", 40):                                "[redacted:model-api-key]",
		"sk_live_" + strings.Repeat("x", 24):                                     "[redacted:stripe-key]",
		"npm_" + strings.Repeat("x", 36):                                         "[redacted:npm-token]",
		"dw_" + strings.Repeat("x", 43):                                          "[redacted:doorward-token]",
		jwt:                                                                      "[redacted:json-web-token]",
		"Authorization: Bearer " + strings.Repeat("x", 20):                       "Authorization: Bearer [redacted:authorization-header]",
		"postgres://user:hunter2" + "@db/x":                                      "postgres://user:[redacted:url-password]@db/x",
		`{"password": "correct horse"}`:                                          `{"password": "correct horse"}`,
		`{"password": "correct-horse"}`:                                          `{"password": "[redacted:assigned-secret]"}`,
		`API_KEY='` + `0123456789abcdef'`:                                        "API_KEY='[redacted:assigned-secret]'",
		"nothing of the kind: sk-, AKIA, https://host:8080/a@b, 4711":            "nothing of the kind: sk-, AKIA, https://host:8080/a@b, 4711",
	} {
		if got, _ := s.Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	raw := []byte(` {"a" : "x ` + aws + `", "n":1.0, "b":["` + aws + `",{"c":"\u0041KIAIOSFODNN7EXAMPLE"}], "_meta":{"t":"` + aws + `"}} `)
	const found = "aws-access-key=3"
	for mode, want := range map[Mode]struct {
		out     string
		blocked bool
	}{
		Monitor: {string(raw), false},
		Block:   {string(raw), true},
		Redact: {` {"a" : "x [redacted:aws-access-key]", "n":1.0, "b":["[redacted:aws-access-key]",{"c":"[redacted:aws-access-key]"}], "_meta":{"t":"` + aws + `"}} `,
			false},
	} {
		r := scanner(t, mode, "").Look(raw, "_meta")
		if string(r.Out) != want.out || r.Blocked != want.blocked || counts(r.Found) != found {
			t.Errorf("%s: %s %v %s", mode, r.Out, r.Blocked, counts(r.Found))
		}
	}
	clean := []byte(`{"a":"x","n":1.0}`)
	if r := scanner(t, Redact, "").Look(clean, "n"); &r.Out[0] != &clean[0] || r.Found != nil || r.Blocked {
		t.Errorf("%+v", r)
	}
	if s, err := NewLibrary(nil).Scanner(Off, ""); s != nil || err != nil {
		t.Error("off has a scanner")
	}
}

// A secret in the name of a member is cut too. A message is held back if that
// would break it: two members would get one name, or the member is the
// protocol's own.
func TestNamesOfMembers(t *testing.T) {
	t.Parallel()
	s := scanner(t, Redact, "")
	r := s.Look([]byte(`{"arguments":{"`+aws+`":1}}`), "_meta")
	if string(r.Out) != `{"arguments":{"[redacted:aws-access-key]":1}}` || r.Blocked {
		t.Errorf("%s %v", r.Out, r.Blocked)
	}
	r = s.Look([]byte(`{"arguments":{"`+aws+`":1,"AKIA`+`IOSFODNN7EXAMPLF":2}}`), "_meta")
	if !r.Blocked {
		t.Errorf("two members of one name: %s", r.Out)
	}
	if r = s.Look([]byte(`{"`+aws+`":1}`), "_meta"); !r.Blocked {
		t.Errorf("a member of the protocol's own: %s", r.Out)
	}
}

func TestWhatIsTooLargeDoesNotPass(t *testing.T) {
	t.Parallel()
	raw := append(append([]byte(`"`), bytes.Repeat([]byte("x"), MaxBytes)...), '"')
	for mode, blocked := range map[Mode]bool{Monitor: false, Redact: true, Block: true} {
		if r := scanner(t, mode, "").Look(raw); r.Blocked != blocked || counts(r.Found) != "too-large=1" {
			t.Errorf("%s: %v %s", mode, r.Blocked, counts(r.Found))
		}
	}
}

func TestOverlappingMatchesAndNewOnes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rules, in, want string }{
		{"a aaa\nb aab", "xaaaby", "x[redacted:a]y"},
		{"a [0-9]+\nb secret", "se12cret", "se[redacted:a]cret"},
		{"a key=(\\S+)", "key=1 key=2", "key=[redacted:a] key=[redacted:a]"},
		{"all (?s).+", "anything", "[redacted:all]"},
		{"mark redacted", "redacted and more", "[redacted:mark] and more"},
		{"a x\nb \\]y", "xy", "[redacted:a[redacted:b]"},
		{"a x", "[redacted:a] [redacted:b] x", "[redacted:a] [redacted:b] [redacted:a]"},
	} {
		s := scanner(t, Redact, c.rules)
		got, _ := s.Text(c.in)
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.rules, got, c.want)
		}
		if _, again := s.Text(got); again.Found != nil {
			t.Errorf("%q: %q is met again: %s", c.rules, got, counts(again.Found))
		}
	}
}

func TestPatternFilesAreReadStrictly(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("# ok\n\nfine  a+b\nBad x\nempty\nloop a*\nback (a)\\1\nfine c\nlong " + strings.Repeat("a", maxExpression+1)))
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{"line 4: a rule must begin with its name", "line 5: a rule must have an expression", "line 6: the expression matches the empty text",
		"line 7: the expression is not RE2: invalid escape sequence", "line 8: there is another rule with this name", "line 9: the expression is too long"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among:\n%v", want, err)
		}
	}
	for _, bad := range []string{"", "# nothing", "x \xff"} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// needs returns texts in lower case, of which each match of an expression
// contains at least one.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		`\b(?:AKIA|ASIA)[A-Z]{16}`: "akia asia", `gh[pousr]_x`: "gho_x ghp_x ghr_x ghs_x ghu_x", `a+`: "", `(?i)PassWord=(.*)`: "password=",
		`(?:abc|d)`: "", `x?abcd?`: "abc", `(abc){2,3}`: "abcabc", `[a-z]+://`: "://", `(?i)köln|secret`: "", `ab|cd`: "",
	} {
		re, err := syntax.Parse(expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range needs(re.Simplify()) {
			got = append(got, string(n))
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
	s := scanner(t, Redact, "kelvin (?i)token=x\nshort (?i)assk")
	for _, text := range []string{"TOKEN=X", "to\u212aen=x", "aſſk", "ASſ\u212a"} {
		if got, _ := s.Text(text); !strings.HasPrefix(got, labelStart) {
			t.Errorf("%q was passed over: %q", text, got)
		}
	}
}

// A changed file is in force a moment later; a bad one keeps the rules of
// before and is told once.
func TestAPatternFileIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "patterns")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one first")
	var bad, good atomic.Int32
	lib := NewLibrary(func(_ string, err error) {
		if err != nil {
			bad.Add(1)
		} else {
			good.Add(1)
		}
	})
	s, err := lib.Scanner(Monitor, path)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := lib.Scanner(Monitor, path); again != s {
		t.Error("another scanner for the same")
	}
	meets := func(text string) string { _, r := s.Text(text); return counts(r.Found) }
	if meets("first") != "one=1" {
		t.Error("the first rules are not in force")
	}
	write("two second")
	doortest.Until(t, 20*time.Second, "the new rules", func() bool { return meets("second") == "two=1" && meets("first") == "" })
	write("two (")
	doortest.Until(t, 20*time.Second, "the bad file is told", func() bool { meets("x"); return bad.Load() == 1 })
	if meets("second") != "two=1" {
		t.Error("a bad file took the rules away")
	}
	os.Remove(path)
	doortest.Until(t, 20*time.Second, "the missing file is told", func() bool { meets("x"); return bad.Load() == 2 })
	write("three third")
	doortest.Until(t, 20*time.Second, "the good file", func() bool { return meets("third") == "three=1" })
	if good.Load() != 2 || bad.Load() != 2 {
		t.Errorf("told %d good, %d bad", good.Load(), bad.Load())
	}
	if _, err := lib.Scanner(Block, path+".missing"); err == nil {
		t.Error("a missing file was taken")
	}
}

func TestManyLookAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "patterns")
	if err := os.WriteFile(path, []byte("one first"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := NewLibrary(func(string, error) {}).Scanner(Redact, path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				s.source.next.Store(0)
				if got, _ := s.Text("the first"); got != "the [redacted:one]" {
					t.Errorf("%q", got)
					return
				}
			}
		})
	}
	wg.Wait()
}

// JSON that was cut is valid and holds no further match. JSON without a match
// stays as it is.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"a":"xAKIAIOSFODNN7EXAMPLE","b":{"token=ab":["tok\u0065n=\"c"]}}`))
	f.Add([]byte(`["[redacted:a]token=x [redacted:word]","aaab",{"":"é\ud83d\ude00aaa"}]`))
	s := scanner(f, Redact, "word token=(\\S+)\na a{3}\nb aab\nc \\]\\w\nd é.")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if wire.ValidateValue(raw) != nil {
			return
		}
		r := s.Look(raw)
		if r.Blocked {
			return
		}
		if err := wire.ValidateValue(r.Out); err != nil {
			t.Fatalf("%s became %s: %v", raw, r.Out, err)
		}
		if again := s.Look(r.Out); again.Found != nil {
			t.Fatalf("%s became %s, in which %s is met", raw, r.Out, counts(again.Found))
		}
		if r.Found == nil && !bytes.Equal(r.Out, raw) {
			t.Fatalf("%s became %s for nothing", raw, r.Out)
		}
	})
}

func BenchmarkLook(b *testing.B) {
	s := scanner(b, Redact, "")
	for _, size := range []int{300, 10_000, 1_000_000} {
		raw := rawjson.AppendQuote(nil, strings.Repeat("lorem ipsum dolor sit amet, 4711 ", size/33))
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				s.Look(raw)
			}
		})
	}
}

func TestPatternsOfAnotherDirectoryAreNotTaken(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "rules")
	write := func(text string) {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "p"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("one first")
	told := make(chan error, 8)
	s, err := NewLibrary(func(_ string, err error) { told <- err }).Scanner(Monitor, filepath.Join(dir, "p"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	write("two second")
	doortest.Until(t, 20*time.Second, "it is told", func() bool { s.Text("x"); return len(told) > 0 })
	if _, r := s.Text("first second"); <-told == nil || counts(r.Found) != "one=1" {
		t.Errorf("found %s", counts(r.Found))
	}
}
