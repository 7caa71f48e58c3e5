package session

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestATokenShowsItsSession(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		token, s := b.issue(ask())
		want := &Session{ID: s.ID, Subject: "uid:1000", Scope: []string{"behavioural", "structural"}, Project: "demo", Client: "claude/1.0",
			Issued: b.now().UTC(), Expires: b.now().UTC().Add(24 * time.Hour), RefreshAfter: b.now().UTC().Add(18 * time.Hour)}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want, b.good(token, owner())); diff != "" {
			t.Error(diff)
		}
		if found, ok := b.Find(s.ID); !ok || cmp.Diff(*want, found) != "" {
			t.Errorf("found %+v, %v", found, ok)
		}
	})
}

// The form of a token is fixed, and the id is taken from the digest of sid.
func TestATokenIsWrittenAsAgreed(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.Bind = owner().Processes[1]
		token, s := b.issue(r)
		parts := strings.Split(token, ".")
		same(t, "parts", len(parts), 4)
		same(t, "first part", parts[0], "dws1")
		text, err := base64.RawURLEncoding.DecodeString(parts[2])
		must(t, err)
		var p map[string]any
		must(t, json.Unmarshal(text, &p))
		sid, _ := p["sid"].(string)
		raw, err := hex.DecodeString(sid)
		must(t, err)
		same(t, "bits of sid", len(raw)*8, 128)
		sum := sha256.Sum256([]byte(sid))
		same(t, "id", s.ID, hex.EncodeToString(sum[:])[:16])
		want := map[string]any{"sid": sid, "sub": "uid:1000", "aud": "here", "iat": float64(b.now().Unix()), "exp": float64(b.now().Unix() + 86400),
			"scope": []any{"behavioural", "structural"}, "bind": "boot/5@1"}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOneFlippedBitAnywhereIsRefused(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.Bind = owner().Processes[0]
		token, _ := b.issue(r)
		b.issue(ask())
		for i := range len(token) {
			for bit := range 8 {
				other := []byte(token)
				other[i] ^= 1 << bit
				for _, c := range []Caller{owner(), {}} {
					if s, err := b.Check(string(other), c); err == nil || s != nil {
						t.Fatalf("byte %d, bit %d: taken", i, bit)
					}
				}
			}
		}
		b.good(token, owner())
	})
}

// A token has exactly one text: variants that a lenient decoder accepts are refused.
func TestATokenHasOneText(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		token, _ := b.issue(ask())
		parts := strings.Split(token, ".")
		join := func(p ...string) string { return strings.Join(p, ".") }
		// alike decodes to the same bytes for a decoder that is not strict.
		alike := func(part string) string {
			const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
			was, _ := base64.RawURLEncoding.DecodeString(part)
			for _, c := range alphabet {
				other := part[:len(part)-1] + string(c)
				if is, err := base64.RawURLEncoding.DecodeString(other); err == nil && string(is) == string(was) && other != part {
					return other
				}
			}
			return ""
		}
		mac := alike(parts[3])
		if mac == "" {
			t.Fatal("the MAC has no text that decodes alike: the test shows nothing")
		}
		texts := []string{join(parts[0], parts[1], parts[2], mac)}
		if body := alike(parts[2]); body != "" {
			texts = append(texts, join(parts[0], parts[1], body, parts[3]))
		}
		for _, s := range []string{"=", "==", "\n", "\r\n", " ", "\t", "\x00", ".", "..", ".x", "A", "\u200b"} {
			texts = append(texts, token+s, s+token, join(parts[0], parts[1], parts[2]+s, parts[3]), join(parts[0], parts[1]+s, parts[2], parts[3]),
				token[:len(token)/2]+s+token[len(token)/2:])
		}
		raw, err := base64.RawURLEncoding.DecodeString(parts[3])
		must(t, err)
		body, err := base64.RawURLEncoding.DecodeString(parts[2])
		must(t, err)
		texts = append(texts, "", ".", "...", "dws1", "dws1.", "dws1...", token[:len(token)-1], token[1:], strings.ToUpper(token), strings.ToLower(token),
			token+token, "Bearer "+token, "dws1.."+parts[2]+"."+parts[3], "dws1."+parts[1]+".."+parts[3], "dws1."+parts[1]+"."+parts[2]+".",
			"dws2"+token[4:], "DWS1"+token[4:], join(parts[0], parts[1], parts[3], parts[2]), join(parts[0], parts[2], parts[1], parts[3]),
			join(parts[0], parts[1], parts[2], hex.EncodeToString(raw)), join(parts[0], parts[1], parts[2], base64.URLEncoding.EncodeToString(raw)),
			join(parts[0], parts[1], parts[2], base64.StdEncoding.EncodeToString(append(raw, 0xff))), join(parts[0], parts[1], string(body), parts[3]),
			join(parts[0], parts[1], parts[2], parts[3], parts[3]), join(parts[0], parts[1], parts[2]))
		for _, text := range texts {
			if text == token {
				t.Fatalf("%q is the token itself", text)
			}
			if s, err := b.Check(text, owner()); err == nil {
				t.Errorf("%q is taken for %+v", text, s)
			}
		}
		b.good(token, owner())
	})
}

// The length is checked first: a token of 1024 bytes is refused for its MAC, a longer
// one as malformed.
func TestATokenOf1025BytesIsNotLookedAt(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		kid := b.ring.Load().newest().id
		long := func(n int) string {
			return Prefix + kid + "." + strings.Repeat("A", n-len(Prefix)-len(kid)-1-44) + "." + strings.Repeat("A", 43)
		}
		same(t, "length", len(long(1024)), 1024)
		b.bad(long(1024), Caller{}, MAC)
		b.bad(long(1025), Caller{}, Malformed)
		b.bad(long(1<<20), Caller{}, Malformed)
	})
}

func TestNamesThatAreTooLongForATokenStandInItAsDigests(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		for _, subject := range []string{strings.Repeat("a", 256), strings.Repeat("a", 257), strings.Repeat("<", 256), strings.Repeat("é", 128), strings.Repeat("a", 1024)} {
			r := ask()
			r.Subject, r.Bind = subject, strings.Repeat("b", 128)
			token, s := b.issue(r)
			plain := subject == strings.Repeat("a", 256) || subject == strings.Repeat("é", 128)
			if sub := b.tokens.claims(s, "", &grant{}).Sub; plain != (sub == subject) || !plain && (!strings.HasPrefix(sub, "sha256:") || len(sub) != 71) {
				t.Errorf("%d bytes stand as %s", len(subject), sub)
			}
			if len(token) > MaxToken || s.Subject != subject {
				t.Errorf("%d bytes for %s", len(token), s.Subject)
			}
			c := Caller{Unix: true, Principal: subject, Processes: []string{r.Bind}}
			same(t, "subject", b.good(token, c).Subject, subject)
			c.Principal = subject[:len(subject)-1]
			b.bad(token, c, Binding)
			c.Principal = b.tokens.claims(s, "", &grant{}).Sub
			if c.Principal != subject {
				b.bad(token, c, Binding) // a digest is not accepted as a name
			}
		}
		o := b.options()
		o.Installation = strings.Repeat("i", 500)
		k := b.open(o)
		r := ask()
		r.Subject, r.Bind = strings.Repeat("a", 256), strings.Repeat("b", 128)
		token, _, err := k.Issue(t.Context(), r, said)
		must(t, err)
		if _, err := k.Check(token, Caller{}); err != nil {
			t.Errorf("%d bytes: %v", len(token), err)
		}
		b.bad(token, Caller{}, Binding)
	})
}

// A correctly signed payload in another spelling is refused as malformed.
func TestAPayloadHasOneSpelling(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		token, _ := b.issue(ask())
		body, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[2])
		must(t, err)
		sign := func(text string) string {
			k := b.ring.Load().newest()
			signed := Prefix + k.id + "." + base64.RawURLEncoding.EncodeToString([]byte(text))
			return signed + "." + k.mac(signed)
		}
		plain := string(body)
		same(t, "signed as it is", sign(plain), token)
		for _, text := range []string{"null", "{}", "[]", `""`, "1", " " + plain, plain + " ", plain + "\n", plain + plain, plain[:len(plain)-1],
			strings.Replace(plain, ":", ": ", 1), strings.Replace(plain, `"sub"`, `"Sub"`, 1), strings.Replace(plain, `"sub"`, `"s\u0075b"`, 1),
			strings.Replace(plain, "{", `{"x":1,`, 1), strings.Replace(plain, "{", `{"sid":"00000000000000000000000000000000",`, 1),
			strings.Replace(plain, "}", `,"sub":"uid:0"}`, 1), strings.Replace(plain, `"uid:1000"`, `"uid:1\u0030\u0030\u0030"`, 1),
			strings.Replace(plain, `"iat":`, `"iat":-`, 1) + "x", strings.Replace(plain, `"bind":""`, `"bind":null`, 1), plain + "\x00", "\xef\xbb\xbf" + plain} {
			b.bad(sign(text), Caller{}, Malformed)
		}
		b.good(token, owner())
	})
}

func TestATokenIsNowhereOnDiskNorInALine(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		var tokens []string
		token, s := b.issue(ask())
		tokens = append(tokens, token)
		b.pass(time.Minute)
		again, s, err := b.Renew(t.Context(), s, func(s *Session) any { return *s })
		must(t, err)
		tokens = append(tokens, again)
		b.bad(again[:len(again)-2]+"AA", owner(), MAC)
		b.bad(again, Caller{Unix: true}, Binding)
		_, err = b.End(t.Context(), s.ID, ReasonEnded, func(s *Session) any { return *s })
		must(t, err)
		b.bad(again, owner(), Revoked)
		last, _ := b.issue(ask())
		tokens = append(tokens, last)
		var secrets []string
		for _, token := range tokens {
			parts := strings.Split(token, ".")
			p, _ := b.ring.Load().read(token)
			raw, err := hex.DecodeString(p.SID)
			must(t, err)
			secrets = append(secrets, token, parts[2], parts[3], p.SID, string(raw))
		}
		seen := 0
		must(t, filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			seen++
			return nothingOf(path, secrets)
		}))
		if seen < 3 {
			t.Errorf("%d files: the test shows little", seen)
		}
		for _, secret := range secrets {
			if strings.Contains(b.log.String(), secret) || strings.Contains(fmt.Sprintf("%+v %+v", b.notes, b.ended), secret) {
				t.Error("a part of a token is in the log or in a record")
			}
		}
	})
}

func nothingOf(path string, secrets []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, secret := range secrets {
		if strings.Contains(string(text), secret) {
			return fmt.Errorf("a part of a token is in %s", path)
		}
	}
	return nil
}

func FuzzCheck(f *testing.F) {
	keys := &ring{[]key{newKey(time.Unix(1, 0)), newKey(time.Unix(1, 0))}}
	p := payload{SID: newSID(), Sub: "uid:1000", Aud: "here", Iat: 1, Exp: 1 << 40, Scope: []string{Structural}, Bind: "b/1@2"}
	text, err := p.write(keys.newest())
	must(f, err)
	k := &Keeper{tokens: tokens{aud: "here"}, o: Options{Now: func() time.Time { return time.Unix(100, 0) }, Gone: func(string) bool { return false }},
		sessions: make(map[string]*entry), grants: make(map[digest]*grant), live: make(map[string]int)}
	k.ring.Store(keys)
	e := newEntry(Session{ID: "0", Subject: p.Sub, Scope: p.Scope, Bind: p.Bind}, time.Hour)
	e.grants = []*grant{{id: digestOf(p.SID), of: e, iat: p.Iat, exp: p.Exp, until: time.Unix(1<<40, 0)}}
	k.add(e)
	// The mutator chooses the place and the inserted text, so each input is a valid
	// token with one change.
	f.Add(0, 0, "")
	f.Add(0, len(text), "dws1.a.b.c")
	f.Add(len(text), 0, "=")
	f.Add(5, 12, keys.keys[1].id)
	f.Add(len(text)-1, 1, "A")
	f.Fuzz(func(t *testing.T, at, cut int, put string) {
		at = min(max(at, 0), len(text))
		cut = min(max(cut, 0), len(text)-at)
		other := text[:at] + put + text[at+cut:]
		s, err := k.Check(other, Caller{})
		if (err == nil) != (other == text) || (s != nil) != (err == nil) {
			t.Errorf("%q: %+v, %v", other, s, err)
		}
		var invalid *Invalid
		if err != nil && (!errors.As(err, &invalid) || !slices.Contains([]string{Malformed, MAC, Expired, Revoked, Binding}, invalid.Reason)) {
			t.Errorf("refused by %v", err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	keys := &ring{[]key{newKey(time.Unix(1, 0))}}
	p := payload{SID: newSID(), Sub: "uid:1000", Aud: "here", Iat: 1, Exp: 1 << 40, Scope: []string{Structural}}
	text, _ := p.write(keys.newest())
	k := &Keeper{tokens: tokens{aud: "here"}, o: Options{Now: func() time.Time { return time.Unix(100, 0) }}, sessions: make(map[string]*entry), grants: make(map[digest]*grant), live: make(map[string]int)}
	k.ring.Store(keys)
	e := newEntry(Session{ID: "0", Subject: p.Sub, Scope: p.Scope}, time.Hour)
	e.grants = []*grant{{id: digestOf(p.SID), of: e, iat: p.Iat, exp: p.Exp, until: time.Unix(1<<40, 0)}}
	k.add(e)
	for b.Loop() {
		if _, err := k.Check(text, Caller{}); err != nil {
			b.Fatal(err)
		}
	}
}
