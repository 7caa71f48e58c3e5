package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// forms are the address forms of the bind table, and forms that imitate them.
// PORT stands for the port; class is the class of the form in the bind table.
var forms = []struct {
	addr  string
	class string // loopback, other, or bad: can never be bound
}{
	{"127.0.0.1:PORT", "loopback"},
	{"127.0.0.2:PORT", "loopback"},
	{"127.255.255.254:PORT", "loopback"},
	{"[::1]:PORT", "loopback"},
	{"[0:0:0:0:0:0:0:1]:PORT", "loopback"},
	{"[0000:0000:0000:0000:0000:0000:0000:0001]:PORT", "loopback"},
	{"::1", "loopback"},
	{"[::1]", "loopback"},
	{"127.0.0.1", "loopback"},
	{"localhost:PORT", "loopback"},
	{"LocalHost:PORT", "loopback"},
	{"LOCALHOST:PORT", "loopback"},

	{"0.0.0.0:PORT", "other"},
	{"[::]:PORT", "other"},
	{":PORT", "other"},
	{"::", "other"},
	{"[::ffff:127.0.0.1]:PORT", "other"},
	{"[::ffff:7f00:1]:PORT", "other"},
	{"[::ffff:0.0.0.0]:PORT", "other"},
	{"[::1%lo]:PORT", "other"},
	{"[::127.0.0.1]:PORT", "other"},
	{"[64:ff9b::7f00:1]:PORT", "other"},
	{"[fe80::1%lo]:PORT", "other"},
	{"::1:7866", "other"},
	{"10.0.0.1:PORT", "other"},
	{"192.0.2.1:PORT", "other"},
	{"128.0.0.1:PORT", "other"},
	{"126.255.255.255:PORT", "other"},
	{"[2001:db8::1]:PORT", "other"},
	{"sub.localhost:PORT", "other"},
	{"localhost.localdomain:PORT", "other"},
	{"127.0.0.1.nip.io:PORT", "other"},
	{"example.com:PORT", "other"},
	{"a:PORT", "other"},

	{"127.1:PORT", "bad"},
	{"127:PORT", "bad"},
	{"0177.0.0.1:PORT", "bad"},
	{"127.0.0.01:PORT", "bad"},
	{"0x7f.0.0.1:PORT", "bad"},
	{"0x7f000001:PORT", "bad"},
	{"0X7F000001:PORT", "bad"},
	{"2130706433:PORT", "bad"},
	{"0:PORT", "bad"},
	{"7866", "bad"},
	{"localhost.:PORT", "bad"},
	{"127.0.0.1.:PORT", "bad"},
	{" 127.0.0.1:PORT", "bad"},
	{"127.0.0.1 :PORT", "bad"},
	{" localhost:PORT", "bad"},
	{"localhost\n:PORT", "bad"},
	{"１２７.0.0.1:PORT", "bad"},
	{"localhoſt:PORT", "bad"},
	{"loc\u0430lhost:PORT", "bad"},
	{"[127.0.0.1]:PORT", "bad"},
	{"[localhost]:PORT", "bad"},
	{"[::1:PORT", "bad"},
	{"[[::1]]:PORT", "bad"},
	{"[::1]x:PORT", "bad"},
	{"[]:PORT", "bad"},
	{"127.0.0.1:http", "bad"},
	{"127.0.0.1:", "bad"},
	{"127.0.0.1:65536", "bad"},
	{"127.0.0.1:-1", "bad"},
	{"127.0.0.1:+80", "bad"},
	{"127.0.0.1:080", "bad"},
	{"*:PORT", "bad"},
	{"-a:PORT", "bad"},
	{"a..b:PORT", "bad"},
	{"http://127.0.0.1:PORT", "bad"},
	{"127.0.0.1/8:PORT", "bad"},
	{"", "bad"},
}

// credentials are the states of the credential in the bind table.
var credentials = []struct {
	name string
	Credential
}{
	{"none", Credential{}},
	{"made", Credential{Made: true}},
	{"set", Credential{Set: true}},
	{"set and made", Credential{Set: true, Made: true}},
	{"unusable", Credential{Unusable: "DOORWARD_TOKEN is shorter than 16 characters"}},
	{"unusable, beside one that is set", Credential{Set: true, Unusable: "DOORWARD_TOKEN is shorter than 16 characters"}},
	{"unusable, and tokens made", Credential{Made: true, Unusable: "the token file x cannot be read"}},
	{"unusable, and all the others", Credential{Set: true, Made: true, Unusable: "x", Problem: "x; y"}},
	{"a damaged store", Credential{Problem: "the token store is damaged"}},
}

// row is the decision in one cell of the bind table.
type row struct{ listen, enforce bool }

// table is the bind table, by class, auth and credential: `s` serves without
// authentication, `e` enforces, `-` refuses. The order is that of credentials.
var table = map[string]map[string]string{
	"loopback": {"auto": "ssee----s", "": "ssee----s", "required": "eeee----e", "none": "ssss----s", "maybe": "---------"},
	"other":    {"auto": "--ee-----", "": "--ee-----", "required": "-eee-----", "none": "---------", "maybe": "---------"},
	"bad":      {"auto": "---------", "": "---------", "required": "---------", "none": "---------", "maybe": "---------"},
}

func cell(class, auth string, credential int) row {
	switch table[class][auth][credential] {
	case 's':
		return row{listen: true}
	case 'e':
		return row{listen: true, enforce: true}
	}
	return row{}
}

func TestTheBindTable(t *testing.T) {
	before := queries.Load()
	for _, f := range forms {
		for auth := range table[f.class] {
			for i, c := range credentials {
				s := Spec{Network: "tcp", Addr: strings.ReplaceAll(f.addr, "PORT", "0"), Auth: auth}
				d := Plan(s, c.Credential)
				if got, want := (row{d.Listen, d.Enforce}), cell(f.class, auth, i); got != want {
					t.Errorf("%q auth %q credential %s: %+v, want %+v (%s)", f.addr, auth, c.name, got, want, d.Reason)
				}
				if d.Loopback != (f.class == "loopback") {
					t.Errorf("%q: loopback %v", f.addr, d.Loopback)
				}
				if d.Listen == (d.Reason != "") {
					t.Errorf("%q auth %q credential %s: listen %v with reason %q", f.addr, auth, c.name, d.Listen, d.Reason)
				}
				if !d.Enforce && !d.Loopback && d.Listen {
					t.Errorf("%q is open to the network without authentication", f.addr)
				}
			}
		}
	}
	if n := queries.Load() - before; n != 0 {
		t.Errorf("%d queries were sent to classify addresses", n)
	}
}

// Listening on a name sends a query, which the counter counts. Otherwise the tests that
// expect no query could not fail.
func TestTheResolverOfThisTestCountsQueries(t *testing.T) {
	before := queries.Load()
	if l, err := net.Listen("tcp", "127.0.0.1.nip.io:0"); err == nil {
		l.Close()
	}
	if queries.Load() == before {
		t.Fatal("a name was looked up without a counted query: the other tests prove nothing")
	}
}

// Opening looks up a name only if it is served with authentication. Numeric forms are never
// looked up, and bad forms are never bound.
func TestOpeningLooksUpANameOnlyWithAuthentication(t *testing.T) {
	for _, f := range forms {
		for _, c := range credentials {
			before := queries.Load()
			l, err := Open(t.Context(), Spec{Network: "tcp", Addr: strings.ReplaceAll(f.addr, "PORT", "0")}, c.Credential, Options{})
			if err == nil {
				l.Close()
			}
			isNameForm := f.class == "other" && strings.ContainsAny(f.addr, "aehlmn") && !strings.ContainsAny(f.addr, "[%")
			if asked := queries.Load() > before; asked && !(isNameForm && c.Set) {
				t.Errorf("%q with credential %s sent a query", f.addr, c.name)
			}
			if f.class == "bad" && err == nil {
				t.Errorf("%q was bound", f.addr)
			}
		}
	}
}

func TestLocalhostIsLoopbackOnlyIfAllItsAddressesAre(t *testing.T) {
	t.Parallel()
	ips := func(texts ...string) (all []netip.Addr) {
		for _, s := range texts {
			all = append(all, netip.MustParseAddr(s))
		}
		return all
	}
	for _, tc := range []struct {
		answers  []netip.Addr
		err      error
		loopback bool
		ends     string
	}{
		{answers: ips("127.0.0.1"), loopback: true, ends: "[127.0.0.1:80]"},
		{answers: ips("127.0.0.1", "::1"), loopback: true, ends: "[127.0.0.1:80 [::1]:80]"},
		{answers: ips("::ffff:127.0.0.1", "127.0.0.1"), loopback: true, ends: "[127.0.0.1:80]"},
		{answers: ips("127.0.0.1", "10.0.0.1"), ends: "[127.0.0.1:80 10.0.0.1:80]"},
		{answers: ips("192.0.2.1"), ends: "[192.0.2.1:80]"},
		{answers: ips("::1%lo"), ends: "[[::1%lo]:80]"},
		{answers: nil, ends: "[]"},
		{err: errors.New("no such host"), ends: "[]"},
	} {
		asked := ""
		a := classify(t.Context(), "LOCALHOST:80", func(_ context.Context, name string) ([]netip.Addr, error) {
			asked = name
			return tc.answers, tc.err
		})
		if asked != "localhost" || a.loopback != tc.loopback || fmt.Sprint(a.ends) != tc.ends {
			t.Errorf("%v %v: asked for %q, loopback %v, ends %v", tc.answers, tc.err, asked, a.loopback, a.ends)
		}
		d := decide(Spec{Network: "tcp"}, a, Credential{})
		if d.Listen != tc.loopback {
			t.Errorf("%v %v: listen %v without a token", tc.answers, tc.err, d.Listen)
		}
	}
}

func TestTheRefusalNamesListenerReasonAndBothRemedies(t *testing.T) {
	t.Parallel()
	for _, c := range []Credential{{}, {Unusable: "DOORWARD_TOKEN is shorter than 16 characters"}, {Made: true}} {
		_, err := Open(t.Context(), Spec{Network: "tcp", Addr: "0.0.0.0:7866"}, c, Options{})
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Fatalf("%v is no RefusedError", err)
		}
		line := err.Error()
		for _, want := range []string{"0.0.0.0:7866", "not a loopback address", "DOORWARD_TOKEN", "--token-file", "127.0.0.1", c.Unusable} {
			if !strings.Contains(line, want) {
				t.Errorf("%q does not say %q", line, want)
			}
		}
		if strings.Contains(line, "\n") {
			t.Errorf("%q is more than one line", line)
		}
	}
	odd := (&RefusedError{Addr: "0.0.0.0\x1b[2J\n", Reason: "r"}).Error()
	if strings.ContainsAny(odd, "\n\x1b") {
		t.Errorf("%q passes control characters on", odd)
	}
}

func TestTLSAndWarnings(t *testing.T) {
	t.Parallel()
	set := Credential{Set: true}
	for _, tc := range []struct {
		name    string
		s       Spec
		c       Credential
		listen  bool
		warning string // part of it; "" for none
	}{
		{"no TLS off loopback", Spec{Addr: "0.0.0.0:0"}, set, true, "no TLS"},
		{"TLS off loopback", Spec{Addr: "0.0.0.0:0", CertFile: "c", KeyFile: "k"}, set, true, ""},
		{"require_tls without", Spec{Addr: "0.0.0.0:0", RequireTLS: true}, set, false, ""},
		{"require_tls with", Spec{Addr: "0.0.0.0:0", RequireTLS: true, CertFile: "c", KeyFile: "k"}, set, true, ""},
		{"require_tls on loopback without", Spec{Addr: "127.0.0.1:0", RequireTLS: true}, Credential{}, false, ""},
		{"half a pair", Spec{Addr: "127.0.0.1:0", CertFile: "c"}, Credential{}, false, ""},
		{"the other half", Spec{Addr: "127.0.0.1:0", KeyFile: "k"}, Credential{}, false, ""},
		{"plain loopback", Spec{Addr: "127.0.0.1:0"}, Credential{}, true, ""},
		{"unusable token on loopback", Spec{Addr: "127.0.0.1:0"}, Credential{Unusable: "too short"}, false, ""},
		{"unusable token and auth none", Spec{Addr: "127.0.0.1:0", Auth: AuthNone}, Credential{Unusable: "too short"}, false, ""},
		{"damaged store on loopback", Spec{Addr: "127.0.0.1:0"}, Credential{Problem: "too odd"}, true, "too odd"},
		{"auth none and a token", Spec{Addr: "127.0.0.1:0", Auth: AuthNone}, set, true, "not required"},
		{"required and nothing there", Spec{Addr: "127.0.0.1:0", Auth: AuthRequired}, Credential{}, true, "token new"},
		{"odd hosts", Spec{Addr: "127.0.0.1:0", Hosts: []string{"http://x"}}, Credential{}, true, "never match"},
		{"odd origins", Spec{Addr: "127.0.0.1:0", Origins: []string{"null"}}, Credential{}, true, "never match"},
	} {
		tc.s.Network = "tcp"
		d := Plan(tc.s, tc.c)
		if d.Listen != tc.listen || (tc.warning == "") != (d.Warning == "") || !strings.Contains(d.Warning, tc.warning) {
			t.Errorf("%s: listen %v, warning %q, reason %q", tc.name, d.Listen, d.Warning, d.Reason)
		}
	}
	if d := Plan(Spec{Network: "sctp", Addr: "127.0.0.1:0"}, set); d.Listen {
		t.Error("an unknown network was accepted")
	}
	if d := Plan(Spec{Network: "unix", Addr: "auto"}, Credential{}); !d.Listen || d.Enforce {
		t.Errorf("the socket: %+v", d)
	}
}

// FuzzClassify: an address that is classified as loopback is a plain loopback literal
// according to net/netip, or the name localhost.
func FuzzClassify(f *testing.F) {
	for _, form := range forms {
		f.Add(strings.ReplaceAll(form.addr, "PORT", "7866"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := classify(context.Background(), text, func(_ context.Context, name string) ([]netip.Addr, error) {
			if !strings.HasPrefix(strings.ToLower(text), "localhost") {
				t.Errorf("%q was looked up as %q", text, name)
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		})
		if a.problem != "" {
			if a.loopback || len(a.ends) > 0 {
				t.Errorf("%q is unfit and yet %+v", text, a)
			}
			return
		}
		if a.name == "" && len(a.ends) == 0 {
			t.Errorf("%q has neither addresses nor a name", text)
		}
		for _, end := range a.ends {
			if a.loopback && !end.Addr().IsLoopback() {
				t.Errorf("%q is called loopback and binds %v", text, end)
			}
		}
		if !a.loopback {
			return
		}
		host := text
		if h, _, err := net.SplitHostPort(text); err == nil {
			host = h
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		ip, err := netip.ParseAddr(host)
		if err == nil && (!ip.IsLoopback() || ip.Is4In6() || ip.Zone() != "") {
			t.Errorf("%q is called loopback, netip says %v", text, ip)
		}
		if err != nil && strings.ToLower(host) != "localhost" {
			t.Errorf("%q is called loopback and is neither literal nor localhost", text)
		}
	})
}
