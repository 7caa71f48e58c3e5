package library_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/library"
)

// An invalid document of a remote is refused with its reason, and the others are
// served.
func TestAnInvalidRemoteDocumentIsRefused(t *testing.T) {
	t.Parallel()
	change := func(f func(*farDoc)) farDoc {
		d := far("x", "text")
		f(&d)
		return d
	}
	for _, c := range []struct {
		name  string
		doc   farDoc
		words string
	}{
		{"a path", change(func(d *farDoc) { d.Name = "../../admin" }), "is not the name of a document"},
		{"a query", change(func(d *farDoc) { d.Name = "x?y=z" }), "is not the name of a document"},
		{"capitals", change(func(d *farDoc) { d.Name = "X" }), "is not the name of a document"},
		{"no name", change(func(d *farDoc) { d.Name = "" }), "is not the name of a document"},
		{"a long name", change(func(d *farDoc) { d.Name = strings.Repeat("x", 64) }), "is not the name of a document"},
		{"the name of another", change(func(d *farDoc) { d.Name = "good" }), "listed twice"},
		{"a class", change(func(d *farDoc) { d.Class = "program" }), "an unknown class"},
		{"a tier", change(func(d *farDoc) { d.Tier = "public" }), "an unknown tier"},
		{"a version", change(func(d *farDoc) { d.Version = "1" }), "an invalid version"},
		{"a voice that is none", change(func(d *farDoc) { d.Name = "voice" }), "class voice"},
		{"variables of a voice", change(func(d *farDoc) { d.Variables = json.RawMessage(`{"a":{"type":"string"}}`) }), "variables"},
		{"too long", change(func(d *farDoc) { d.Text = strings.Repeat("x", 256<<10+1) }), "at most 262144"},
		{"an unknown variable", change(func(d *farDoc) { d.Text = "{{who}}" }), "who"},
		{"a header of its own", change(func(d *farDoc) { d.Description = "x\nname: good" }), "one line"},
		{"hidden characters", change(func(d *farDoc) { d.Text = "a\u202eb" }), "invisible character"},
		{"no text", change(func(d *farDoc) { d.Text = "" }), "differs from what was listed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, far("good", "good"), c.doc)
			b := newBed(t, from(o), "")
			ready(t, b.Library)
			b.serves("good=good")
			b.is("")
			_, s := b.Set()
			if len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Text, c.words) || s.Problems[0].Warning {
				t.Errorf("problems: %+v", s.Problems)
			}
			o.set(far("good", "good"))
			await(t, "it is forgotten", func() bool { _, s := b.Set(); return len(s.Problems) == 0 })
			o.set(c.doc)
			await(t, "nothing can be used", func() bool { _, s := b.Set(); return s.OK == (c.name == "the name of another") })
		})
	}
}

// A document whose name, version, class or tier differs from the remote's list is
// refused.
func TestADocumentThatDiffersFromItsListIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*farDoc){
		"name":    func(d *farDoc) { d.Name = "good" },
		"version": func(d *farDoc) { d.Version = version("y") },
		"class":   func(d *farDoc) { d.Class = "template" },
		"tier":    func(d *farDoc) { d.Tier = "structural" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := far("x", "text")
			o := newOrigin(t, far("good", "good"), x)
			o.answer("x", func(w http.ResponseWriter, _ *http.Request) {
				d := x
				change(&d)
				reply(w, d)
			})
			b := newBed(t, from(o), "")
			ready(t, b.Library)
			b.serves("good=good")
			b.is("")
			b.problem(o.URL+"/x", "differs from what was listed")
			o.answer("x", nil)
			comesTo(t, b, "good=good", "x=text")
			b.noProblems()
		})
	}
}

// A refresh is served as a whole or not at all: one document that cannot be fetched
// keeps the set from before.
func TestARefreshIsTakenWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, far("a", "first"), far("b", "first"))
	b := newBed(t, from(o), "")
	comesTo(t, b, "a=first", "b=first")
	var refused atomic.Int64
	o.answer("b", func(w http.ResponseWriter, _ *http.Request) { refused.Add(1); w.WriteHeader(500) })
	o.set(far("a", "second"), far("b", "second"))
	await(t, "it failed", func() bool { _, s := b.Set(); return len(s.Problems) == 1 })
	tried := refused.Load()
	await(t, "it was tried again", func() bool {
		b.serves("a=first", "b=first")
		return refused.Load() > tried+1
	})
	o.answer("b", nil)
	comesTo(t, b, "a=second", "b=second")
}

func TestARemoteIsReadOnlyAndNotStoredOnDisk(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, far("a", "the heron waits for nobody"))
	b := newBed(t, from(o), "")
	comesTo(t, b, "a=the heron waits for nobody")
	ctx := t.Context()
	_, err := b.Promote(ctx, "a", "", "", note)
	refused(t, err, library.ErrRemote)
	_, err = b.Rollback(ctx, "a", note)
	refused(t, err, library.ErrRemote)
	_, err = b.Revoke(ctx, "a", "", note)
	refused(t, err, library.ErrRemote)
	refused(t, b.Put(ctx, "a", []byte(text("a", "x")), written), library.ErrRemote)
	refused(t, b.Replace(ctx, "a", version("x"), []byte(text("a", "x")), written), library.ErrRemote)
	_, err = b.Content(ctx, "a", "")
	refused(t, err, library.ErrRemote)
	all, err := b.List(ctx)
	must(t, err)
	if len(all) != 1 || all[0].Name != "a" || !all[0].Served {
		t.Errorf("%+v", all)
	}
	b.deliver(delivery("s1", "a"))
	if n := len(b.delivered()); n != 1 {
		t.Errorf("%d deliveries", n)
	}
	b.end()
	must(t, filepath.WalkDir(b.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), "heron") {
			t.Errorf("it is in %s", path)
		}
		return err
	}))
}

func TestTheCredentialIsAskedForEachTimeAndStaysSecret(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, far("a", "first"))
	opt := from(o)
	var fail atomic.Bool
	fail.Store(true)
	opt.Remote.Authorize = func(context.Context) (string, error) {
		if fail.Load() {
			return "", errors.New("sign in again")
		}
		return o.token, nil
	}
	b := newBed(t, opt, "")
	ready(t, b.Library)
	if s := b.is("the credential for it: sign in again"); strings.Contains(fmt.Sprint(s), "the-token") {
		t.Errorf("%+v", s)
	}
	fail.Store(false)
	comesTo(t, b, "a=first")
}

func TestARemoteIsReachedByTLSOrOnThisMachine(t *testing.T) {
	b := on(t, library.Options{})
	for url, ok := range map[string]bool{
		"https://guides.example": true, "https://guides.example:8443/x/": true, "http://127.0.0.1:1": true, "http://localhost:1": true,
		"http://guides.example": false, "http://127.example": false, "http://[::1]:1": true, "https://user:pass@guides.example": false, "https://guides.example?token=x": false,
		"ftp://guides.example": false, "guides.example": false, "": false,
	} {
		o := b.options()
		o.Dir, o.Remote = "", &library.Remote{URL: url}
		_, err := library.Open(t.Context(), o)
		if (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && (strings.Contains(err.Error(), "pass") || strings.Contains(err.Error(), "token")) {
			t.Errorf("the error quotes the URL: %v", err)
		}
	}
}

// The default client of a remote reaches public addresses alone.
func TestTheDefaultClientReachesNoPrivateAddress(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, far("a", "first"))
	opt := from(o)
	opt.Remote.Client = nil
	b := newBed(t, opt, "")
	ready(t, b.Library)
	b.is("is not allowed as an upstream")
}

// The download of a remote's documents stops when they exceed 64 MiB together.
func TestADownloadStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	var docs []farDoc
	for i := range 1000 {
		docs = append(docs, far(fmt.Sprint("d", i), strings.Repeat("x", 250_000)))
	}
	o := newOrigin(t, docs...)
	options := from(o)
	options.Remote.Every = time.Minute
	b := newBed(t, options, "")
	ready(t, b.Library)
	b.serves()
	b.is("more than 67108864 bytes")
	if n := o.texts.Load(); n < 200 || n > 400 { // 268 are 64 MiB
		t.Errorf("%d texts were asked for", n)
	}
}
