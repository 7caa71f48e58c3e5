package deliver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/trust/gate"
)

// composedJSON is the composed text with ?format=json.
type composedJSON struct {
	Text     string   `json:"text"` // with preamble and ref
	Revision string   `json:"revision"`
	Names    []string `json:"names"`
	Cut      bool     `json:"cut"`
	Ref      string   `json:"ref"`
	Scope    []string `json:"scope"`
	Degraded string   `json:"degraded,omitempty"`
}

// templateJSON is one document with ?format=json.
type templateJSON struct {
	library.Listed
	Preamble string `json:"preamble"`
	Text     string `json:"text"` // without preamble and ref
	Ref      string `json:"ref"`
	Revision string `json:"revision"`
}

// listJSON is the list of documents that a reader may read.
type listJSON struct {
	Revision  string           `json:"revision"`
	Templates []library.Listed `json:"templates"`
}

// inJSON reads ?format: md, which is the default, or json.
func (q textRequest) inJSON() (bool, error) {
	switch q.query.Get("format") {
	case "json":
		return true, nil
	case "", "md":
		return false, nil
	}
	return false, malformed()
}

func (q textRequest) instructions() error {
	inJSON, err := q.inJSON()
	if err != nil {
		return err
	}
	max := 0
	if v := q.query.Get("max_bytes"); v != "" {
		if max, err = strconv.Atoi(v); err != nil || strconv.Itoa(max) != v || max < minComposed || max > MaxComposed {
			return malformed()
		}
	}
	t, err := q.s.deliveries.Instructions(q.r.Context(), q.reader, max)
	if err != nil {
		return err
	}
	if !inJSON {
		return response(q).text(t)
	}
	return response(q).json(t.Revision, composedJSON{Text: t.Body, Revision: t.Revision, Names: orEmpty(t.Names), Cut: t.Cut, Ref: t.Ref,
		Scope: orEmpty(q.reader.Scope), Degraded: t.Degraded})
}

func (q textRequest) voice() error {
	inJSON, err := q.inJSON()
	if err != nil {
		return err
	}
	return q.document(inJSON)(q.s.deliveries.Voice(q.r.Context(), q.reader))
}

func (q textRequest) template() error {
	inJSON, err := q.inJSON()
	version, label := q.query.Get("version"), q.query.Get("label")
	if err != nil || version != "" && (label != "" || !isDigest(version)) || label != "" && !document.ValidName(label) {
		return malformed()
	}
	return q.document(inJSON)(q.s.deliveries.Template(q.r.Context(), q.reader, q.name, version, label))
}

// rendering is the body of a request to render.
type rendering struct {
	Vars json.RawMessage `json:"vars"`
}

func (q textRequest) render() error {
	inJSON, err := q.inJSON()
	if err != nil {
		return err
	}
	var in rendering
	if err := decode(q.body, &in); err != nil {
		return err
	}
	if in.Vars != nil && in.Vars[0] != '{' {
		return malformed()
	}
	return q.document(inJSON)(q.s.deliveries.Render(q.r.Context(), q.reader, q.name, in.Vars))
}

// document answers with one document. Forbidden and missing documents have the
// same answer, whichever check fails.
func (q textRequest) document(inJSON bool) func(*Text, error) error {
	return func(t *Text, err error) error {
		switch {
		case denied(err):
			return notFound()
		case err != nil:
			return err
		case !inJSON || t.Document == nil:
			return response(q).text(t)
		}
		d := t.Document
		return response(q).json(t.Revision, templateJSON{
			Listed: listed(d, t.Tier), Preamble: t.Preamble, Text: t.Bare, Ref: t.Ref, Revision: t.Revision})
	}
}

// denied reports whether err is a denial by policy.
func denied(err error) bool {
	var refusal *gate.Refusal
	return errors.As(err, &refusal) && refusal.Code == gate.CodeDenied
}

func (q textRequest) templates() error {
	if v := q.query.Get("format"); v != "" && v != "json" {
		return malformed()
	}
	docs, revision, err := q.s.deliveries.Templates(q.r.Context(), q.reader)
	if err != nil {
		return err
	}
	out := listJSON{Revision: revision, Templates: []library.Listed{}}
	for _, d := range docs {
		out.Templates = append(out.Templates, listed(d.Document, d.Tier))
	}
	return response(q).json(revision, out)
}

func listed(d *document.Document, tier string) library.Listed {
	out := library.Listed{Name: d.Name, Class: d.Class, Tier: tier, Version: d.Version, Description: d.Description, Variables: d.Variables, Prompt: d.Prompt}
	if out.Variables == nil {
		out.Variables = map[string]json.RawMessage{}
	}
	return out
}

// orEmpty returns a slice that is never null in JSON.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// text answers with a text as Markdown, with preamble and ref.
func (q response) text(t *Text) error {
	if t.Degraded != "" {
		q.w.Header().Set("Doorward-Degraded", t.Degraded)
	}
	q.answer("text/markdown; charset=utf-8", t.Revision, []byte(t.Body))
	return nil
}

func (q response) json(revision string, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	q.answer("application/json", revision, body)
	return nil
}

// answer sends a delivered text. A caller that already has it gets a 304; the request was
// decided and recorded all the same.
func (q response) answer(kind, revision string, body []byte) {
	h := q.w.Header()
	if revision != "" {
		h.Set("Doorward-Revision", revision)
	}
	if q.r.Method != http.MethodPost {
		tag := tagOf(q.reader.key(), body)
		h.Set("ETag", tag)
		if unchanged(q.r.Header, tag) {
			q.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(writeLimit))
	q.w.Write(body)
}

// writeLimit is how long a caller may leave one write unread.
const writeLimit = 30 * time.Second

// encode returns v in JSON, without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return b.Bytes(), nil
}
