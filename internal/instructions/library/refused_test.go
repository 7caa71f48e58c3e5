package library_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/instructions/library"
)

// purse has a credential after the first refusal, and a newer one after each further refusal.
type purse struct {
	mu      sync.Mutex
	tokens  []string // still to come
	now     string
	err     error
	carried []string
}

func (p *purse) authorize(context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, nil
}

func (p *purse) refused(_ context.Context, header string, resp *http.Response) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carried = append(p.carried, fmt.Sprintf("%s %d", header, resp.StatusCode))
	if p.err != nil || len(p.tokens) == 0 {
		return false, p.err
	}
	p.now, p.tokens = p.tokens[0], p.tokens[1:]
	return true, nil
}

// mirror are the options of a library that mirrors o with the credentials of p.
func mirror(o *origin, p *purse) library.Options {
	opt := from(o)
	opt.Remote.Authorize, opt.Remote.Refused = p.authorize, p.refused
	return opt
}

// A request that is refused is sent again with a better credential: the first one has none, and sends no empty header.
func TestARefusedRequestIsSentAgain(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, far("a", "first"))
	var empty sync.Map
	o.guard(func(_ http.ResponseWriter, r *http.Request) bool {
		if v := r.Header.Values("Authorization"); len(v) == 1 && v[0] == "" {
			empty.Store(r.URL.Path, true)
		}
		return true
	})
	p := &purse{tokens: []string{"Bearer the-token", "Bearer another"}}
	b := newBed(t, mirror(o, p), "")
	comesTo(t, b, "a=first")
	o.mu.Lock()
	o.token = "Bearer another"
	o.mu.Unlock()
	o.set(far("a", "second"))
	comesTo(t, b, "a=second")
	b.is("")
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.carried) != 2 || p.carried[0] != " 401" || p.carried[1] != "Bearer the-token 401" {
		t.Errorf("refused: %q", p.carried)
	}
	empty.Range(func(path, _ any) bool { t.Errorf("%s got an empty header", path); return true })
}

// The refusal of a credential is a decision, also if there is an error with getting a better one. Without a credential such
// an error is an outage.
func TestARefusalStandsWithoutABetterCredential(t *testing.T) {
	t.Parallel()
	for what, err := range map[string]error{"none": nil, "the issuer is away": errors.New("the issuer is away"), "the end": library.ErrCredential} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, far("a", "first"))
			p := &purse{tokens: []string{"Bearer the-token"}}
			b := newBed(t, mirror(o, p), "")
			comesTo(t, b, "a=first")
			p.mu.Lock()
			p.err = err
			p.mu.Unlock()
			o.mu.Lock()
			o.token = "Bearer another"
			o.mu.Unlock()
			await(t, "nothing is given", func() bool { _, s := b.Set(); return !s.OK })
			b.is("gives no documents")
			b.serves()
		})
	}
	o := newOrigin(t, far("a", "first"))
	b := newBed(t, mirror(o, &purse{err: errors.New("the issuer is away")}), "")
	await(t, "an outage", func() bool {
		_, s := b.Set()
		return !s.OK && strings.Contains(s.Reason, "has not given its documents")
	})
}
