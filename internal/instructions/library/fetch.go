package library

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/document"
)

// refresh fetches the list and, when it has changed, all documents in it: a text changes
// with its includes, while its version stays. A failed request fails the refresh, because
// a part of a set is never served. After ErrCredential, nothing of earlier refreshes is
// kept. After other errors the fetched documents are kept, and the next refresh continues
// as long as the list stays the same. An invalid document costs only itself.
func (r *remote) refresh(ctx context.Context, first bool) error {
	budget, end := laterTime, time.Now().Add(waitAll)
	if first {
		budget, end = firstTime, time.Now().Add(firstTime)
	}
	err := r.renew(ctx, budget, &patience{end: end})
	switch {
	case errors.Is(err, errUnchanged):
		return nil
	case errors.Is(err, ErrCredential):
		r.catalog, r.etag, r.begun = catalog{}, "", begun{}
	}
	return err
}

// renew is refresh with a time limit for each request. errUnchanged: nothing has changed.
func (r *remote) renew(ctx context.Context, budget time.Duration, p *patience) error {
	list, etag, err := r.list(ctx, budget, p)
	if err != nil {
		return err
	}
	if etag == "" || etag != r.begun.etag {
		r.begun = begun{etag: etag, list: list}
	}
	next, err := r.fetch(ctx, budget, p, list)
	if err != nil {
		return err
	}
	r.catalog, r.etag, r.begun = next, etag, begun{}
	for _, f := range next.docs {
		if f.again {
			r.etag = ""
		}
	}
	return nil
}

// list fetches the list. errUnchanged: the catalog has all of it.
func (r *remote) list(ctx context.Context, budget time.Duration, p *patience) ([]Listed, string, error) {
	known := cmp.Or(r.begun.etag, r.etag)
	u := r.base.JoinPath("auth", "templates")
	u.RawQuery = "format=json"
	var etag string
	var list struct {
		Templates []Listed `json:"templates"`
	}
	err := p.with(ctx, func() (err error) {
		list.Templates = nil
		etag, err = r.get(ctx, budget, u, maxList, known, &list)
		return err
	})
	switch {
	case errors.Is(err, errUnchanged) && r.begun.etag != "":
		return r.begun.list, r.begun.etag, nil
	case err != nil:
		return nil, "", err
	case etag != "" && etag == r.etag: // the list has returned to its earlier state
		r.begun = begun{}
		return nil, "", errUnchanged
	case len(list.Templates) > maxFiles:
		return nil, "", fmt.Errorf("it lists %d documents: at most %d are possible", len(list.Templates), maxFiles)
	}
	return list.Templates, etag, nil
}

// sorted splits a list: next has the valid names and the problems, wanted the entries to
// fetch.
func (r *remote) sorted(list []Listed) (next catalog, wanted []Listed) {
	next = catalog{docs: make(map[string]farDocument)}
	for _, e := range list {
		text := e.refuse()
		_, twice := next.docs[e.Name]
		switch {
		case text != "":
			next.refused = append(next.refused, r.problem(e.Name, text))
		case twice:
			next.refused = append(next.refused, r.problem(e.Name, "is listed twice: the first is taken"))
		default:
			next.docs[e.Name] = farDocument{}
			wanted = append(wanted, e)
		}
	}
	return next, wanted
}

// fetch gets the documents of a list that have not been fetched yet.
func (r *remote) fetch(ctx context.Context, budget time.Duration, p *patience, list []Listed) (catalog, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next, wanted := r.sorted(list)
	got := make([]farDocument, len(wanted))
	turns := make(chan struct{}, fetchers)
	var wg sync.WaitGroup
	var size atomic.Int64
	for i, e := range wanted {
		if old, ok := r.begun.got[e.Name]; ok && reflect.DeepEqual(old.listed, e) {
			got[i] = old
			size.Add(old.bytes)
			continue
		}
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return
			}
			var err error
			if got[i], err = r.document(ctx, budget, p, e, &size); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		r.keep(got, err)
		return catalog{}, err
	}
	for _, f := range got {
		next.docs[f.listed.Name] = r.known(f)
	}
	return next, nil
}

// keep stores what was fetched before an error, for the next refresh. It stores nothing
// when the size limit was exceeded, and nothing of a list without an ETag.
func (r *remote) keep(got []farDocument, why error) {
	if r.begun.etag == "" || errors.Is(why, errTooMuch) {
		r.begun = begun{}
		return
	}
	r.begun.got = make(map[string]farDocument)
	for _, f := range got {
		if f.came && !f.again {
			r.begun.got[f.listed.Name] = f
		}
	}
}

// known returns the earlier document if f is equal to it.
func (r *remote) known(f farDocument) farDocument {
	old := r.catalog.docs[f.listed.Name]
	if f.doc != nil && old.doc != nil && f.doc.Body == old.doc.Body && reflect.DeepEqual(f.listed, old.listed) {
		return old
	}
	return f
}

// problem returns a problem of a document of the remote.
func (r *remote) problem(name, text string) document.Problem {
	return document.Problem{File: r.from + "/" + plaintext.Name(name[:min(len(name), 64)]), Line: 1, Text: text}
}

// document fetches one document, and adds its size to the total. The error is that of a
// failed request, or errTooMuch; it stops the other requests.
func (r *remote) document(ctx context.Context, budget time.Duration, p *patience, e Listed, size *atomic.Int64) (farDocument, error) {
	out := farDocument{listed: e}
	var answer struct {
		Listed
		Text *string `json:"text"`
	}
	u := r.base.JoinPath("auth", "templates", e.Name)
	u.RawQuery = url.Values{"format": {"json"}, "version": {e.Version}}.Encode()
	err := p.with(ctx, func() error {
		_, err := r.get(ctx, budget, u, maxReply, "", &answer)
		return err
	})
	if answer.Text != nil {
		if out.bytes = int64(len(*answer.Text)); size.Add(out.bytes) > maxFar {
			return out, errTooMuch
		}
	}
	var wrong *wrongAnswer
	switch {
	case errors.As(err, &wrong):
		out.again, out.why = true, document.Problems{r.problem(e.Name, wrong.Error())}
		return out, nil
	case err != nil:
		return out, err
	case answer.Text == nil || answer.Name != e.Name || answer.Version != e.Version || answer.Class != e.Class || answer.Tier != e.Tier:
		out.again, out.why = true, document.Problems{r.problem(e.Name, "the content differs from what was listed")}
		return out, nil
	}
	out.came = true
	out.doc, err = e.parse(r.problem(e.Name, "").File, *answer.Text)
	var problems document.Problems
	if errors.As(err, &problems) {
		out.why = problems
	} else if err != nil {
		out.why = document.Problems{r.problem(e.Name, err.Error())}
	}
	return out, nil
}

var (
	// errUnchanged: nothing has changed since the ETag.
	errUnchanged = errors.New("unchanged")
	// ErrCredential: the remote refuses the credential, or there is no credential any
	// more. It is a decision and not an outage: the documents given for that credential
	// are not served any more.
	ErrCredential = errors.New("it does not accept the credential")
	// errTooMuch stops the other requests of a refresh.
	errTooMuch = fmt.Errorf("its documents have more than %d bytes", maxFar)
)

// wrongAnswer is an answer that does not hold what was asked for.
type wrongAnswer struct{ text string }

func (e *wrongAnswer) Error() string { return e.text }

// get makes one request. The answer must be strict JSON, so that all readers read it
// alike.
func (r *remote) get(ctx context.Context, budget time.Duration, u *url.URL, most int64, etag string, into any) (newTag string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, budget, fmt.Errorf("no answer within %s", budget))
	defer cancel()
	req, resp, err := r.send(ctx, u, etag)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && etag != "":
		return etag, errUnchanged
	case resp.StatusCode/100 == 3:
		return "", fmt.Errorf("it answers with a redirect (HTTP %d), which is not followed", resp.StatusCode)
	case isRefusal(resp):
		return "", fmt.Errorf("%w (HTTP %d)", ErrCredential, resp.StatusCode)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		return "", busy(resp, time.Now())
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("it answers with HTTP %d", resp.StatusCode)
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return "", &wrongAnswer{"the answer is not application/json"}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the answer: %w", failure(ctx, err))
	case int64(len(body)) > most:
		return "", &wrongAnswer{fmt.Sprintf("the answer has more than %d bytes", most)}
	}
	if err := strict.Unmarshal(body, into); err != nil {
		return "", &wrongAnswer{"the answer is not the expected JSON object"} // the error may quote it
	}
	if repeats(body, req.Header.Get("Authorization")) {
		return "", errors.New("the answer contains the credential")
	}
	return resp.Header.Get("ETag"), nil
}

// repeats reports whether a JSON answer holds the credential, however it is escaped.
// Names in an answer are shown and recorded, so it must not get into them.
func repeats(body []byte, authorization string) bool {
	_, token, _ := strings.Cut(authorization, " ")
	if token == "" {
		return false
	}
	if bytes.Contains(body, []byte(`\`)) {
		v := jsontext.Value(bytes.Clone(body))
		if v.Canonicalize() == nil {
			body = v
		}
	}
	return bytes.Contains(body, []byte(token))
}

// failure returns the cause of a failed request, without its URL.
func failure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
