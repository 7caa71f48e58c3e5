package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
)

// hostile is markup where it is not escaped, and has characters that hide or turn
// the text around them.
const hostile = `<img src=x onerror=alert(1)><script>alert(1)</script>"'` + "\u202e\u2066\u200b\x1b\u0007"

// fill puts hostile text into every string that v reaches, and at least one
// element into every list.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.Slice:
		if depth > 4 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}

func hostileData[T any]() any {
	var v T
	fill(reflect.ValueOf(&v).Elem(), 0)
	return v
}

// allPages are the data of every template.
func allPages() map[string]any {
	text := hostile
	return map[string]any{
		"now": hostileData[nowData](), "activity": hostileData[activityData](), "record": hostileData[recordData](),
		"decisions": hostileData[decisionsData](), "servers": hostileData[[]admin.Server](), "server": hostileData[serverData](),
		"definition": hostileData[definitionData](), "agents": agentsWithout(), "peer": hostileData[peerData](), "message": hostileData[agent.Traced](),
		"instructions": hostileData[instructionsData](), "document": hostileData[documentData](), "policy": hostileData[policyData](),
		"health": hostileData[healthData](), "passkeys": hostileData[passkeysData](), "signin": nil, "failed": text,
	}
}

// agentsWithout is the page Agents with messaging on.
func agentsWithout() agentsData {
	d := hostileData[agentsData]().(agentsData)
	d.Off = false
	return d
}

// TestHostileTextIsTextInEveryField: hostile text in any field makes no markup and
// shows no hidden character, on every page and in every live part.
func TestHostileTextIsTextInEveryField(t *testing.T) {
	t.Parallel()
	v, err := newViews(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	all := allPages()
	for name := range v.byName {
		if _, ok := all[name]; !ok {
			t.Errorf("the page %s is not looked at", name)
		}
	}
	tag := regexp.MustCompile(`(?i)<(img|iframe|object|embed)|<script>|<[^<>]*\son[a-z]+=`)
	quotedText := regexp.MustCompile(`"[^"<>]*"`)
	hidden := regexp.MustCompile("[\u202a-\u202e\u2066-\u2069\u200b\x1b\x07]")
	for name, data := range all {
		for _, part := range []string{"layout", "live"} {
			w := httptest.NewRecorder()
			v.write(w, http.StatusOK, name, part, page{View: hostile, Title: hostile, Who: hostile, CSRF: hostile, Flash: hostile, Live: true, Part: "/ui/" + hostile, Data: data})
			body := w.Body.String()
			if w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", name, w.Code, body)
			}
			clean := quotedText.ReplaceAllString(body, `""`)
			if at := tag.FindStringIndex(clean); at != nil {
				t.Errorf("%s, %s: a text became markup: %.120s", name, part, clean[max(0, at[0]-40):])
			}
			if at := hidden.FindStringIndex(body); at != nil {
				t.Errorf("%s, %s: a character that cannot be seen: %.80q", name, part, body[max(0, at[0]-40):])
			}
		}
	}
}

// TestNoPageHasInlineScriptOrStyle: the content policy would block them, and a page
// that needs them would not work.
func TestNoPageHasInlineScriptOrStyle(t *testing.T) {
	t.Parallel()
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script>|https?://|hx-on|js:`)
	entries, err := pages.ReadDir("pages")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := pages.ReadFile("pages/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if found := inline.FindString(string(b)); found != "" {
			t.Errorf("%s has %q", e.Name(), found)
		}
	}
}

// TestLiveMarkupIsWhatTheScriptTakes: every tag and attribute of a live part is
// on the list of console.js, which refuses everything else.
func TestLiveMarkupIsWhatTheScriptTakes(t *testing.T) {
	t.Parallel()
	script, err := static.ReadFile("static/console.js")
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) *regexp.Regexp {
		m := regexp.MustCompile(`const ` + name + ` = '([^']+)'`).FindSubmatch(script)
		if m == nil {
			t.Fatalf("console.js has no list of %s", name)
		}
		return regexp.MustCompile(`(?i)^(?:` + string(m[1]) + `)$`)
	}
	tags, attributes := list("tags"), list("attributes")
	v, err := newViews(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	element := regexp.MustCompile(`<([a-zA-Z0-9]+)((?:\s+[a-zA-Z-]+(?:="[^"]*")?)*)\s*/?>`)
	attribute := regexp.MustCompile(`\s([a-zA-Z-]+)(?:="[^"]*")?`)
	for name, data := range allPages() {
		w := httptest.NewRecorder()
		v.write(w, http.StatusOK, name, "live", page{Live: true, Part: "/ui/", Data: data})
		body := w.Body.String()
		if n, m := strings.Count(body, "<"), len(element.FindAllString(body, -1))+strings.Count(body, "</"); n != m {
			t.Errorf("%s: %d tags, %d of them plain", name, n, m)
		}
		for _, m := range element.FindAllStringSubmatch(body, -1) {
			if !tags.MatchString(m[1]) {
				t.Errorf("%s has the tag %s", name, m[1])
			}
			for _, a := range attribute.FindAllStringSubmatch(m[2], -1) {
				if !attributes.MatchString(a[1]) {
					t.Errorf("%s has the attribute %s", name, a[1])
				}
			}
		}
	}
}

// TestWhatEveryPageLoadsIsSmall: the static files together have at most 56 KiB, which
// leaves room for a page below 100 KB, and are answered with 304 by their ETag.
func TestWhatEveryPageLoadsIsSmall(t *testing.T) {
	t.Parallel()
	v, err := newViews(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for name, f := range v.files {
		if f.kind == "" {
			t.Errorf("%s has no media type", name)
		}
		if !strings.HasSuffix(name, ".LICENSE") {
			sum += len(f.body)
		}
	}
	if sum > 56<<10 {
		t.Errorf("the files are %d bytes", sum)
	}
	r := httptest.NewRequest(http.MethodGet, "/ui/static/style.css", nil)
	w := httptest.NewRecorder()
	v.serveStatic(w, r, "style.css")
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	v.serveStatic(again, r, "style.css")
	if w.Code != http.StatusOK || again.Code != http.StatusNotModified {
		t.Errorf("%d, and again %d", w.Code, again.Code)
	}
	for _, name := range []string{"", "nix", "../console.go", "style.css/"} {
		w := httptest.NewRecorder()
		v.serveStatic(w, r, name)
		if w.Code != http.StatusNotFound {
			t.Errorf("%q: %d", name, w.Code)
		}
	}
}

// TestADefinitionIsApprovedOnlyWhereAllOfItIsShown: a definition that is too large
// for the page is cut, and is approved on the command line.
func TestADefinitionIsApprovedOnlyWhereAllOfItIsShown(t *testing.T) {
	t.Parallel()
	small := withheld("a", `{"description":"new"}`)
	large := withheld("b", fmt.Sprintf(`{"description":%q}`, strings.Repeat("x", mostBytes+1)))
	shown, more := changesOf([]admin.Trust{{Server: "s", Withheld: small}, {Server: "s", Withheld: large}})
	if len(shown) != 2 || more != 0 || shown[0].Cut || !shown[1].Cut || !shown[0].Approvable {
		t.Errorf("%+v, and %d more", shown, more)
	}
	many := make([]admin.Trust, 3*mostHeld)
	for i := range many {
		many[i] = admin.Trust{Server: "s", Withheld: small}
	}
	if shown, more := changesOf(many); len(shown) != mostHeld || more != 2*mostHeld {
		t.Errorf("%d shown, %d more", len(shown), more)
	}
	if got := fitting([]Held{{Args: strings.Repeat("x", mostBytes+1)}, {Args: "{}"}}); len(got) != 1 || !got[0].Cut() {
		t.Errorf("%d calls", len(got))
	}
}
