package principal_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

func TestAnInvalidPrincipalHasNoNameAndNoFacts(t *testing.T) {
	t.Parallel()
	zero := principal.Principal{}
	for name, p := range map[string]*principal.Principal{
		"nil": nil, "zero": &zero,
		"empty name": principal.New(""), "unknown kind": principal.New("root:0"),
		"padded": principal.New(" uid:0"), "no user": principal.New(principal.UID(math.MaxUint32)),
	} {
		if p.Valid() || p.Name() != "" || p.Key() != "" || p.Local() {
			t.Errorf("%s: valid=%v name=%q key=%q local=%v, want an invalid principal", name, p.Valid(), p.Name(), p.Key(), p.Local())
		}
		if got := string(p.FactsJSON()); got != "[]" {
			t.Errorf("%s: facts %s, want []", name, got)
		}
		if _, ok := p.Fact("uid"); ok || len(p.Facts()) != 0 {
			t.Errorf("%s has facts", name)
		}
	}
	if (*principal.Principal)(nil).WithLocal().Valid() {
		t.Error("WithLocal of nil is a valid principal")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		principal.UID(0):                                  {"uid", "0"},
		principal.UID(1000):                               {"uid", "1000"},
		principal.UID(math.MaxUint32 - 1):                 {"uid", "4294967294"},
		principal.Token("ci-1.main_x"):                    {"token", "ci-1.main_x"},
		principal.Loopback(1000):                          {"loopback", "uid=1000"},
		principal.LoopbackUnknown:                         {"loopback", "unknown"},
		principal.OAuth("https://id.example:8443/t", "a"): {"oauth", "https://id.example:8443/t#a"},
		principal.OAuth("http://localhost", "a b#c:é"):    {"oauth", "http://localhost#a b#c:é"},
		principal.Spawn("Ab_9-"):                          {"spawn", "Ab_9-"},
	} {
		kind, rest, err := principal.Parse(name)
		if err != nil || kind != want[0] || rest != want[1] {
			t.Errorf("Parse(%q) = %q, %q, %v; want %q", name, kind, rest, err, want)
		}
		if p := principal.New(name); !p.Valid() || p.Name() != name || p.Key() != name {
			t.Errorf("New(%q) is not valid", name)
		}
	}
}

func TestOneSpellingOnly(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", ":", "uid", "uid:", "uid:01", "uid:+1", "uid:-1", "uid: 1", "uid:1 ", "uid:0x1", "uid:1_0", "uid:4294967295", "uid:4294967296",
		"UID:1", "Uid:1", "uid:١", "uid:1\n", "uid:1\x00", "user:1", "claimed:claude",
		"token:", "token:a b", "token:a:b", "token:a\n", "token:.a", "token:-a", "token:é", "token:" + strings.Repeat("a", 65),
		"loopback:", "loopback:1000", "loopback:uid=", "loopback:uid=01", "loopback:uid=4294967295", "loopback:UID=1", "loopback:unknown ",
		"oauth:", "oauth:https://i", "oauth:https://i#", "oauth:#s", "oauth:i#s", "oauth:ftp://i#s", "oauth:https://#s", "oauth:https://u@i#s",
		"oauth:https://i /#s", "oauth:https://i/a b#s", "oauth:https://i/a\u202eb#s", "oauth:https://i/a\u200bb#s", "oauth:https://i#a\u202eb", "oauth:https://i#a\u200bb", "oauth:https://i#a\U000e0041", "oauth:https://i#a\xff",
		"oauth:https://i#\x1b[2J", "oauth:https://i#" + strings.Repeat("a", 256), "oauth:https://" + strings.Repeat("a", 800) + "#s",
		"spawn:", "spawn:a.b", "spawn:a/b", "spawn:../x", "spawn:" + strings.Repeat("a", 129),
	} {
		if kind, rest, err := principal.Parse(name); !errors.Is(err, principal.ErrName) || kind != "" || rest != "" {
			t.Errorf("Parse(%q) = %q, %q, %v; want ErrName", name, kind, rest, err)
		}
		if principal.New(name).Valid() {
			t.Errorf("New(%q) is valid", name)
		}
	}
}

func TestGrades(t *testing.T) {
	t.Parallel()
	for g, want := range map[principal.Grade]struct {
		name            string
		allow, restrict bool
	}{
		principal.Unavailable:  {"unavailable", false, false},
		principal.Claimed:      {"claimed", false, false},
		principal.Observed:     {"observed", false, true},
		principal.Verified:     {"verified", true, true},
		principal.Attested:     {"attested", true, true},
		principal.Attested + 1: {"unavailable", false, false},
		200:                    {"unavailable", false, false},
	} {
		if g.String() != want.name || g.MayAllow() != want.allow || g.MayRestrict() != want.restrict {
			t.Errorf("grade %d: %s allow=%v restrict=%v, want %+v", g, g, g.MayAllow(), g.MayRestrict(), want)
		}
	}
}

func TestFactsKeepTheirGrade(t *testing.T) {
	t.Parallel()
	given := []principal.Fact{
		{Name: "uid", Value: "0", Grade: principal.Claimed},
		{Name: "uid", Value: "1000", Grade: principal.Attested},
		{Name: "uid", Value: "7", Grade: principal.Attested},
		{Name: "exe", Value: "never read", Grade: principal.Unavailable},
		{Name: "odd", Value: "x", Grade: 77},
	}
	p := principal.New("uid:1000", given...)
	given[1].Value = "changed by the caller afterwards"
	p.Facts()[2].Value = "changed through the copy"

	if f, ok := p.Fact("uid"); !ok || f.Value != "1000" || f.Grade != principal.Attested {
		t.Errorf("uid is %+v, want what was attested first", f)
	}
	for _, name := range []string{"exe", "odd"} {
		if f, ok := p.Fact(name); !ok || f.Value != "" || f.Grade != principal.Unavailable {
			t.Errorf("%s is %+v, want no value and unavailable", name, f)
		}
	}
	const want = `[{"name":"uid","value":"0","grade":"claimed"},{"name":"uid","value":"1000","grade":"attested"},` +
		`{"name":"uid","value":"7","grade":"attested"},{"name":"exe","value":"","grade":"unavailable"},` +
		`{"name":"odd","value":"","grade":"unavailable"}]`
	if got := string(p.FactsJSON()); got != want {
		t.Errorf("facts\n%s\nwant\n%s", got, want)
	}
	type text struct {
		Name  string `json:"name"`
		Value string `json:"value"`
		Grade string `json:"grade"`
	}
	var all []text
	for _, f := range p.Facts() {
		all = append(all, text{f.Name, f.Value, f.Grade.String()})
	}
	if b, err := json.Marshal(all); err != nil || string(b) != want {
		t.Errorf("Facts as JSON is not FactsJSON: %s %v", b, err)
	}
}

func TestLocalIsAnotherPrincipalValue(t *testing.T) {
	t.Parallel()
	p := principal.New("uid:1", principal.Fact{Name: "uid", Value: "1", Grade: principal.Attested})
	q := p.WithLocal()
	if p.Local() || !q.Local() || q.Name() != "uid:1" || string(q.FactsJSON()) != string(p.FactsJSON()) {
		t.Errorf("p local=%v, q local=%v name=%s facts=%s", p.Local(), q.Local(), q.Name(), q.FactsJSON())
	}
}

func TestSharedBetweenGoroutines(t *testing.T) {
	t.Parallel()
	p := principal.New("uid:1", principal.Fact{Name: "uid", Value: "1", Grade: principal.Attested})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_, _ = p.Fact("uid")
				_ = append(p.Facts(), principal.Fact{})
				_ = p.WithLocal().FactsJSON()
			}
		})
	}
	wg.Wait()
}

// TestTheLongestNamesAreTaken: a name of exactly the greatest length is valid, and so is
// each end of the alphabets. Names just outside are not.
func TestTheLongestNamesAreTaken(t *testing.T) {
	t.Parallel()
	oauth := "oauth:https://" + strings.Repeat("a", principal.MaxName-len("oauth:https://#s")) + "#s"
	for _, name := range []string{
		"token:" + strings.Repeat("a", 64), "token:azAZ09._-", "token:z", "token:Z", "token:9",
		"spawn:" + strings.Repeat("a", 128), "spawn:azAZ09_-",
		"oauth:https://i#" + strings.Repeat("a", 255), oauth,
	} {
		if _, _, err := principal.Parse(name); err != nil {
			t.Errorf("%d bytes, %.32q: %v", len(name), name, err)
		}
	}
	for _, name := range []string{"token:`", "token:{", "token:@", "token:[", "token:/", "token::", oauth + "s", "oauth:https://i /x#s", "oauth:#s"} {
		if _, _, err := principal.Parse(name); !errors.Is(err, principal.ErrName) {
			t.Errorf("%d bytes, %.32q is a name", len(name), name)
		}
	}
}

// TestTheKeyHoldsTheInstance: the key, to which a session is bound, differs between two
// processes of one user if the instance was at least observed.
func TestTheKeyHoldsTheInstance(t *testing.T) {
	t.Parallel()
	key := func(name, value string, g principal.Grade) string {
		return principal.New(name, principal.Fact{Name: principal.FactInstance, Value: value, Grade: g}).Key()
	}
	for g, bound := range map[principal.Grade]bool{
		principal.Unavailable: false, principal.Claimed: false, principal.Observed: true, principal.Verified: true, principal.Attested: true,
	} {
		if got := key("uid:1000", "boot/7@9", g); (got != "uid:1000") != bound || bound && !strings.Contains(got, "boot/7@9") {
			t.Errorf("%s: %q", g, got)
		}
	}
	if a, b := key("uid:1000", "boot/7@9", principal.Attested), key("uid:1000", "boot/8@9", principal.Attested); a == b {
		t.Errorf("two instances share %q", a)
	}
	if got := key("uid:1000", "", principal.Attested); got != "uid:1000" {
		t.Errorf("an empty instance: %q", got)
	}
	if got := key("no name", "boot/7@9", principal.Attested); got != "" {
		t.Errorf("an invalid principal has the key %q", got)
	}
	if got := principal.New("uid:1000").Key(); got != "uid:1000" {
		t.Errorf("no instance: %q", got)
	}
}
