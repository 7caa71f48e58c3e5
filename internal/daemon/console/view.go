package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/trust/visible"
)

//go:embed static
var static embed.FS

//go:embed pages
var pages embed.FS

// page is the data of a template.
type page struct {
	View  string // the template
	Title string
	Who   string // principal of the session; empty: there is none
	CSRF  string
	Flash string
	Live  bool   // has a part that is refreshed
	Seq   uint64 // of the last record before the page was made
	Part  string // the address of the live part
	Data  any
}

// views holds the templates and static files.
type views struct {
	byName map[string]*template.Template
	files  map[string]file
}

type file struct {
	body      []byte
	kind, tag string
}

// The largest number of bytes of a text on a page: in a list, in one line, and as the whole
// page.
const (
	maxText  = 512
	maxBrief = 1 << 10
	maxPage  = 32 << 10
)

func newViews(now func() time.Time) (*views, error) {
	v := &views{byName: make(map[string]*template.Template), files: make(map[string]file)}
	names, err := fs.Glob(pages, "pages/*.html")
	if err != nil {
		return nil, fmt.Errorf("finding the pages: %w", err)
	}
	for _, name := range names {
		if path.Base(name) == "layout.html" {
			continue
		}
		t, err := template.New("layout.html").Funcs(functions(now)).ParseFS(pages, "pages/layout.html", name)
		if err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		v.byName[strings.TrimSuffix(path.Base(name), ".html")] = t
	}
	return v, v.readStatic()
}

func (v *views) readStatic() error {
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".LICENSE": "text/plain; charset=utf-8"}
	all, err := static.ReadDir("static")
	if err != nil {
		return fmt.Errorf("finding the files: %w", err)
	}
	for _, e := range all {
		body, err := static.ReadFile("static/" + e.Name())
		if err != nil {
			return fmt.Errorf("reading a file: %w", err)
		}
		sum := sha256.Sum256(body)
		v.files[e.Name()] = file{body: body, kind: kinds[path.Ext(e.Name())], tag: `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return nil
}

// serveStatic serves a static file, without a session.
func (v *views) serveStatic(w http.ResponseWriter, r *http.Request, name string) {
	f, ok := v.files[name]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(f.body)))
	if r.Method == http.MethodGet {
		w.Write(f.body)
	}
}

// write sends a page. Templates escape markup; plaintext.Text then escapes invisible characters
// anywhere on the page.
func (v *views) write(w http.ResponseWriter, status int, view, part string, p page) {
	var b bytes.Buffer
	t := v.byName[view]
	if t == nil {
		http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
		return
	}
	if err := t.ExecuteTemplate(&b, part, p); err != nil {
		http.Error(w, "The page cannot be shown: "+plaintext.Line(err.Error()), http.StatusInternalServerError)
		return
	}
	body := plaintext.Text(b.String())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write([]byte(body))
}

// functions returns the functions of the templates.
func functions(now func() time.Time) template.FuncMap {
	return template.FuncMap{
		"clip": func(s string) string { return clip(plaintext.Line(s), maxText) },
		"ago":  func(t time.Time) string { return ago(now().Sub(t)) },
		"time": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") + " UTC" },
		"iso":  func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"size": size,
		"short": func(s string) string {
			if len(s) > 16 {
				return visible.Cut(s, 12) + "…"
			}
			return s
		},
		"pieces":   pieces,
		"word":     plaintext.Word,
		"join":     func(s []string) string { return strings.Join(s, ", ") },
		"tab":      newTab,
		"outcomes": outcomes,
		"milli":    time.UnixMilli,
		"brief":    func(s string) string { return clip(s, maxBrief) },
		"page":     func(s string) string { return clip(s, maxPage) },
	}
}

// clip cuts a text that is longer than most bytes, and then appends its whole size.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return plaintext.Clip(s, most) + " (" + size(int64(len(s))) + " in all)"
}

// piece is a part of a JSON text. Alone means that it is a string which is not ASCII.
type piece struct {
	Text  string
	Alone bool
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// pieces divides a JSON text, so that a browser reverses the letters of a script that is written
// from right to left within its string alone, and not the numbers and strings beside it.
func pieces(text string) (all []piece) {
	end := 0
	for _, at := range jsonString.FindAllStringIndex(text, -1) {
		if s := text[at[0]:at[1]]; len(s) != utf8.RuneCountInString(s) {
			all = append(all, piece{Text: text[end:at[0]]}, piece{s, true})
			end = at[1]
		}
	}
	return append(all, piece{Text: text[end:]})
}

func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", max(0, int(d/time.Second)))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d/time.Hour))
	}
	return fmt.Sprintf("%d days ago", int(d/(24*time.Hour)))
}

func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// tab is one entry of the navigation.
type tab struct {
	Path, Text string
	Here       bool
}

// newTab returns the tab of a page. Views without a tab belong to that of another view.
func newTab(view, name, path, text string) tab {
	below := map[string]string{"record": "activity", "server": "servers", "definition": "servers", "passkeys": "decisions", "peer": "agents", "message": "agents", "document": "instructions"}
	return tab{Path: path, Text: text, Here: view == name || below[view] == name}
}

type choice struct{ Value, Text string }

// outcomes returns the filters of the page Activity by outcome.
func outcomes() []choice {
	return []choice{{"", "all"}, {"ok", "ok"}, {"error", "failed"}, {"denied", "denied"}, {"open", "not over"}}
}
