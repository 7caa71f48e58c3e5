package library_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/upstream/egress"
	"github.com/doorward/doorward/test/overload"
)

// farDoc is a document in the answers of another Doorward.
type farDoc struct {
	Name        string          `json:"name"`
	Class       string          `json:"class"`
	Tier        string          `json:"tier"`
	Version     string          `json:"version"`
	Description string          `json:"description"`
	Variables   json.RawMessage `json:"variables,omitempty"`
	Prompt      bool            `json:"mcp_prompt"`
	Text        string          `json:"text,omitempty"`
}

func far(name, body string) farDoc {
	class := "instructions"
	if name == "voice" {
		class = "voice"
	}
	return farDoc{Name: name, Class: class, Tier: "behavioural", Version: version(body), Text: body}
}

// origin is another Doorward, over TLS.
type origin struct {
	*httptest.Server
	token string

	mu        sync.Mutex
	list      []farDoc
	instead   http.HandlerFunc                              // answers everything
	door      func(http.ResponseWriter, *http.Request) bool // false: it has answered itself
	insteadOf map[string]http.HandlerFunc

	lists, texts, unchanged, asked atomic.Int64

	signedOut atomic.Bool // the mirror has no credential
}

func newOrigin(t *testing.T, docs ...farDoc) *origin {
	o := &origin{token: "Bearer the-token", list: docs, insteadOf: make(map[string]http.HandlerFunc)}
	o.Server = httptest.NewUnstartedServer(o)
	o.Config.ErrorLog = log.New(io.Discard, "", 0) // errors of connections that a test breaks
	o.StartTLS()
	t.Cleanup(o.Close)
	return o
}

func (o *origin) set(docs ...farDoc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = docs
}

// answer makes h answer all requests, or those of one document; a nil h restores the
// normal answers.
func (o *origin) answer(name string, h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name == "" {
		o.instead = h
		return
	}
	o.insteadOf[name] = h
}

// guard makes door check every request first; nil removes it.
func (o *origin) guard(door func(http.ResponseWriter, *http.Request) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.door = door
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.asked.Add(1)
	name, one := strings.CutPrefix(r.URL.Path, "/below/auth/templates/")
	o.mu.Lock()
	docs, instead, door, token := slices.Clone(o.list), o.instead, o.door, o.token
	if one && instead == nil {
		instead = o.insteadOf[name]
	}
	o.mu.Unlock()
	if door != nil && !door(w, r) {
		return
	}
	switch {
	case instead != nil:
		instead(w, r)
	case r.Header.Get("Authorization") != token:
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method != http.MethodGet || r.URL.Query().Get("format") != "json":
		w.WriteHeader(http.StatusBadRequest)
	case !one && r.URL.Path == "/below/auth/templates":
		o.serveList(w, r, docs)
	default:
		i := slices.IndexFunc(docs, func(d farDoc) bool { return d.Name == name && d.Version == r.URL.Query().Get("version") })
		if i < 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		o.texts.Add(1)
		reply(w, docs[i])
	}
}

func (o *origin) serveList(w http.ResponseWriter, r *http.Request, docs []farDoc) {
	for i := range docs {
		docs[i].Text = ""
	}
	body, _ := json.Marshal(docs)
	tag := `"` + version(string(body)) + `"`
	if r.Header.Get("If-None-Match") == tag {
		o.unchanged.Add(1)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	o.lists.Add(1)
	w.Header().Set("ETag", tag)
	reply(w, map[string]any{"revision": "r", "templates": docs, "new": "in a later version"})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(v)
}

// from are the options of a library that mirrors the origin.
func from(o *origin) library.Options {
	tls := o.Client().Transport.(*http.Transport).TLSClientConfig
	return library.Options{Remote: &library.Remote{URL: o.URL + "/below/", Every: 20 * time.Millisecond, Stale: time.Minute,
		Client: egress.NewClient(egress.Options{AllowPrivate: true, TLSConfig: tls}),
		Authorize: func(context.Context) (string, error) {
			if o.signedOut.Load() {
				return "", fmt.Errorf("asking for a token: %w", library.ErrCredential)
			}
			return "Bearer the-token", nil
		}}}
}

func comesTo(t *testing.T, b *bed, want ...string) {
	t.Helper()
	slices.Sort(want)
	await(t, strings.Join(want, ", "), func() bool { return slices.Equal(bodies(b.Library), want) })
}

func TestDocumentsOfAnotherDoorwardAreServedAndFollowed(t *testing.T) {
	t.Parallel()
	template := far("report", `Dear {{who}}, \{{ is literal & <plain>`)
	template.Class, template.Tier, template.Prompt = "template", "structural", true
	template.Description = `for "reports" & more`
	template.Variables = json.RawMessage(`{"who":{"type":"string","maxLength":80,"default":"\ud83d\ude00"}}`)
	o := newOrigin(t, far("voice", "speak plainly"), template)
	b := newBed(t, from(o), "")
	ready(t, b.Library)
	b.serves("voice=speak plainly", `report=Dear {{who}}, \{{ is literal & <plain>`)
	b.noProblems()
	if s := b.is(""); !s.Remote || s.Unused {
		t.Errorf("%+v", s)
	}
	docs, err := b.Lookup("report", library.Production)
	must(t, err)
	d := docs[0]
	if d.Class != "template" || d.Tier != "structural" || !d.Prompt || d.Description != template.Description || d.Version != template.Version ||
		!strings.Contains(string(d.Schema()), `"maxLength":80`) || !strings.Contains(string(d.Variables["who"]), "😀") {
		t.Errorf("%+v %s", d, d.Schema())
	}
	if _, err := b.Lookup("report", template.Version[:12]); err != nil {
		t.Error(err)
	}
	if _, err := b.Lookup("report", "staging"); !errors.Is(err, library.ErrUnknown) {
		t.Error(err)
	}
	o.set(far("voice", "speak briefly"))
	comesTo(t, b, "voice=speak briefly")
	o.set()
	comesTo(t, b)
	b.is("")
}

// An unchanged list is not sent again, its documents are not fetched again, and
// Changed is not called.
func TestAnUnchangedListCostsNothing(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, far("a", "first"), far("b", "second"))
	b := newBed(t, from(o), "")
	ready(t, b.Library)
	set, _ := b.Set()
	told := b.changed.Load()
	await(t, "it was asked again", func() bool { return o.unchanged.Load() > 5 })
	if again, _ := b.Set(); again != set || o.lists.Load() != 1 || o.texts.Load() != 2 || b.changed.Load() != told {
		t.Errorf("%d lists, %d texts, told %d times", o.lists.Load(), o.texts.Load(), b.changed.Load()-told)
	}
}

// A document is fetched again when one that it includes has changed: its text
// changes with the include, its version does not.
func TestATextThatChangedThroughWhatItIncludesIsFetchedAgain(t *testing.T) {
	t.Parallel()
	a, part := far("a", "with one"), far("part", "one")
	o := newOrigin(t, a, part)
	b := newBed(t, from(o), "")
	ready(t, b.Library)
	b.serves("a=with one", "part=one")
	a.Text = "with two"
	o.set(a, far("part", "two"))
	comesTo(t, b, "a=with two", "part=two")
}

func TestAFailingRemoteIsReportedAndRecovers(t *testing.T) {
	t.Parallel()
	page := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	elsewhere := newOrigin(t, far("a", "of somebody else"))
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		reason string
	}{
		{"absent", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "has not given its documents"},
		{"an error", status(500), "HTTP 500"},
		{"corrupt JSON", page(`{"templates":[{"name":`), "not the expected JSON object"},
		{"a name twice", page(`{"templates":[],"templates":[]}`), "not the expected JSON object"},
		{"another JSON", page(`[1]`), "not the expected JSON object"},
		{"not JSON", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`{"templates":[]}`))
		}, "is not application/json"},
		{"too long", page(`{"templates":[],"x":"` + strings.Repeat("x", 9<<20) + `"}`), "more than 8388608 bytes"},
		{"too many", page(`{"templates":[` + strings.Repeat(`{"name":"a"},`, 1000) + `{"name":"a"}]}`), "1001 documents"},
		{"cut short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"templates":[]}`))
		}, "unexpected EOF"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		}, "a redirect (HTTP 307), which is not followed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, far("a", "first"))
			o.answer("", c.answer)
			b := newBed(t, from(o), "")
			ready(t, b.Library)
			b.is(c.reason)
			b.serves()
			o.answer("", nil)
			comesTo(t, b, "a=first")
			b.noProblems()
			// Once there are documents, the same failure is only a warning.
			o.answer("", c.answer)
			await(t, "it is noticed", func() bool { _, s := b.Set(); return len(s.Problems) == 1 && s.Problems[0].Warning })
			b.problem(o.URL, "the last attempt failed")
			b.is("")
			b.serves("a=first")
			o.answer("", nil)
			await(t, "it is over", func() bool { _, s := b.Set(); return len(s.Problems) == 0 })
		})
	}
}

// TestARefusedCredentialIsNoOutage: when the remote refuses the credential, or none is
// left, its documents are no longer served. Later failures do not bring them back;
// only a complete answer does.
func TestARefusedCredentialIsNoOutage(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	all := func(code int) func(*origin) { return func(o *origin) { o.answer("", status(code)) } }
	oneOf := func(code int) func(*origin) {
		return func(o *origin) {
			o.answer("b", status(code))
			o.set(far("a", "first"), far("b", "another"))
		}
	}
	for name, revoke := range map[string]func(*origin){
		"401 of all":            all(401),
		"403 of all":            all(403),
		"401 of one document":   oneOf(401),
		"403 of one document":   oneOf(403),
		"no credential is left": func(o *origin) { o.signedOut.Store(true) },
		"another token is wanted": func(o *origin) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.token = "Bearer another"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, far("a", "first"), far("b", "second"))
			b := newBed(t, from(o), "")
			comesTo(t, b, "a=first", "b=second")
			first, err := b.Lookup("a", library.Production)
			must(t, err)
			revoke(o)
			await(t, "nothing is given", func() bool { _, s := b.Set(); return !s.OK })
			b.is("gives no documents")
			b.serves()
			for _, ref := range []string{library.Production, first[0].Version} {
				if _, err := b.Lookup("a", ref); !errors.Is(err, library.ErrUnknown) {
					t.Errorf("%s: %v", ref, err)
				}
			}
			for _, then := range []http.HandlerFunc{status(500), status(503), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }} {
				o.answer("", then)
				asked := o.asked.Load()
				await(t, "it is asked again", func() bool { return o.signedOut.Load() || o.asked.Load() > asked+1 })
				b.serves()
				b.is("gives no documents")
			}
			o.mu.Lock()
			o.token, o.insteadOf["b"], o.instead = "Bearer the-token", nil, nil
			o.mu.Unlock()
			o.signedOut.Store(false)
			o.set(far("a", "first"), far("b", "second"))
			comesTo(t, b, "a=first", "b=second")
			b.is("")
		})
	}
}

// The status 304 is an error when there is no earlier answer.
func TestNotModifiedIsNoAnswerToTheFirstRequest(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	o.answer("", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	b := newBed(t, from(o), "")
	ready(t, b.Library)
	b.is("HTTP 304")
}

// The first attempt ends after two seconds, because a start waits for it. Later
// attempts wait longer.
func TestASlowRemoteFailsTheFirstAttemptOnly(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, far("a", "first"))
	var slow atomic.Bool
	slow.Store(true)
	o.answer("", func(w http.ResponseWriter, r *http.Request) {
		if slow.Load() {
			select {
			case <-time.After(5 * time.Second):
			case <-r.Context().Done():
				panic(http.ErrAbortHandler) // a return would be an answer
			}
			slow.Store(false)
		}
		o.serveList(w, r, []farDoc{})
	})
	began := time.Now()
	b := newBed(t, from(o), "")
	ready(t, b.Library)
	if took := time.Since(began); took < 1900*time.Millisecond || took > 4*time.Second+overload.Late() {
		t.Errorf("the first attempt took %s", took)
	}
	b.is("no answer within 2s")
	await(t, "it answered after all", func() bool { _, s := b.Set(); return s.OK })
	if slow.Load() {
		t.Error("an answer that took 5 seconds was not waited for")
	}
}

func TestARemoteThatStaysAwayIsStale(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, far("a", "first"))
	opt := from(o)
	opt.Remote.Stale = 300 * time.Millisecond
	b := newBed(t, opt, "")
	comesTo(t, b, "a=first")
	o.answer("", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	began := time.Now()
	await(t, "it is stale", func() bool { _, s := b.Set(); return !s.OK })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	b.is("for too long: it answers with HTTP 503")
	b.serves("a=first")
	o.answer("", nil)
	await(t, "it is back", func() bool { _, s := b.Set(); return s.OK })
}
