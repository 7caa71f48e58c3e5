package deliver

import (
	"bytes"
	"encoding/json"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
)

// FuzzATokenInAQuery: queryBearsToken finds every token and every parameter named
// token that net/url finds in the same query.
func FuzzATokenInAQuery(f *testing.F) {
	for _, s := range []string{"token=x", "a=dws1.x", "a=%64ws1.x", "a=1&b=2", "%zz&token=%zz", "a;b=dw_x", "x=dwa_1", "=", "&&", "t%6Fken"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, _ := url.ParseQuery(raw)
		for name, values := range q {
			for _, v := range append(values, name) {
				if (strings.Contains(v, "dws1.") || strings.HasPrefix(v, "dw_") || strings.HasPrefix(v, "dwa_") || strings.EqualFold(name, "token")) && !queryBearsToken(raw) {
					t.Fatalf("%q: %q=%q is not found", raw, name, v)
				}
			}
		}
		pathBearsToken(raw)
	})
}

// FuzzAPath: a path that has a route is canonical, and the name in it is valid.
func FuzzAPath(f *testing.F) {
	for _, s := range []string{"/auth/session", "/auth/templates/a/render", "/auth/templates/{name}", "/auth//session", "/auth/admin/sessions/0123456789abcdef/revoke",
		"/auth/templates/sessions/0123456789abcdef", "/auth/%73ession", "/auth/templates/..", "/auth/admin/templates/templates/promote"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		m, name, ok := find(p)
		if !ok {
			return
		}
		u, err := url.ParseRequestURI(p)
		if err != nil || u.Path != p || path.Clean(p) != p || m == nil || name != "" && !document.ValidName(name) {
			t.Fatalf("%q has routes; its name is %q", p, name)
		}
	})
}

// FuzzABody: an accepted body has the same values for a strict reader and for
// encoding/json.
func FuzzABody(f *testing.F) {
	for _, s := range []string{"", "{}", `{"project":"a"}`, `{"project":"a","project":"b"}`, `{"Project":"a"}`, `{"client":{"name":"x"}}`, `{"client":null}`, `[]`, "null",
		`{"ttl_s":1e3}`, `{"bind":"\ud800"}`, "\ufeff{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var in opening
		if decode(body, &in) != nil || len(body) == 0 {
			return
		}
		if project, _ := rawjson.GetString(body, "project"); project != in.Project {
			t.Fatalf("%q: %q", body, in.Project)
		}
		if name, _ := rawjson.GetString(rawjson.Get(body, "client"), "name"); name != in.Client.Name {
			t.Fatalf("%q: %q", body, in.Client.Name)
		}
		var again map[string]any
		if json.Unmarshal(body, &again) != nil || bytes.ContainsRune(bytes.TrimSpace(body)[:1], '[') {
			t.Fatalf("%q is taken", body)
		}
		for name := range again {
			if name != "client" && name != "project" && name != "ttl_s" && name != "bind" {
				t.Fatalf("%q: %q is taken", body, name)
			}
		}
	})
}

// FuzzIfNoneMatch: no list makes it panic, and no list without the tag matches
// but "*".
func FuzzIfNoneMatch(f *testing.F) {
	for _, s := range []string{"*", `"a"`, `W/"a", "b"`, `"`, "W/", ",,", `"a" "b"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		const tag = `"0123456789abcdef0123456789abcdef"`
		if unchanged(map[string][]string{"If-None-Match": {list}}, tag) != (strings.TrimSpace(list) == "*") && !strings.Contains(list, tag) {
			t.Fatalf("%q", list)
		}
	})
}
