package library_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/test/overload"
)

// rate admits a requests in each second, counted from the first of them, and answers
// the others with 429 and Retry-After.
type rate struct {
	a       int
	mu      sync.Mutex
	began   time.Time
	in      int
	refused int
}

func (r *rate) door(w http.ResponseWriter, _ *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.began) > time.Second {
		r.began, r.in = time.Now(), 0
	}
	if r.in++; r.in <= r.a {
		return true
	}
	r.refused++
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
	return false
}

func many(n int) (docs []farDoc, bodies []string) {
	for i := range n {
		d := far(fmt.Sprint("d", i), fmt.Sprint("text ", i))
		docs, bodies = append(docs, d), append(bodies, d.Name+"="+d.Text)
	}
	return docs, bodies
}

// A remote that admits fewer requests a second than it has documents is mirrored
// completely. Only documents under way when the first attempt ended are fetched
// twice.
func TestAMirrorCompletesUnderARateLimit(t *testing.T) {
	t.Parallel()
	docs, want := many(90)
	o := newOrigin(t, docs...)
	limit := &rate{a: 20}
	o.guard(limit.door)
	b := newBed(t, from(o), "")
	comesTo(t, b, want...)
	b.is("")
	limit.mu.Lock()
	defer limit.mu.Unlock()
	if n := o.texts.Load(); n > 90+6 || limit.refused == 0 || limit.refused > 60 {
		t.Errorf("%d texts were given, %d requests refused", n, limit.refused)
	}
}

// Documents that were fetched before an attempt failed are not fetched again, and
// none is served before all are there.
func TestAnAttemptGoesOnWhereTheOneBeforeEnded(t *testing.T) {
	t.Parallel()
	docs, want := many(40)
	o := newOrigin(t, docs...)
	var left atomic.Int64
	left.Store(25)
	o.guard(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/templates/") || left.Add(-1) >= 0 {
			return true
		}
		w.WriteHeader(http.StatusBadGateway)
		return false
	})
	b := newBed(t, from(o), "")
	ready(t, b.Library)
	b.is("HTTP 502")
	b.serves()
	o.guard(nil)
	comesTo(t, b, want...)
	b.is("")
	// Up to three were under way when the attempt ended.
	if n, lists := o.texts.Load(), o.lists.Load(); n > 40+3 || lists != 1 {
		t.Errorf("%d texts, %d lists were given in all", n, lists)
	}
}

// Documents that were fetched for one list are not mixed with those of another.
func TestDocumentsOfTwoListsAreNotMixed(t *testing.T) {
	t.Parallel()
	a, part := far("a", "with one"), far("part", "one")
	o := newOrigin(t, a, part)
	o.answer("part", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	b := newBed(t, from(o), "")
	ready(t, b.Library)
	await(t, "the other one was fetched", func() bool { return o.texts.Load() > 0 })
	a.Text = "with two" // through an include: its version is the same
	o.set(a, far("part", "two"))
	o.answer("part", nil)
	comesTo(t, b, "a=with two", "part=two")
}

// A remote that is always busy, with any Retry-After, delays a start by seconds at
// most, is asked at most twice a second or so, and is mirrored once it answers.
func TestABusyRemoteIsRetriedWithinBounds(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"86400", "99999999999999999999", "-3", "soon", "", "Fri, 31 Dec 9999 23:59:59 GMT", "0"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, far("a", "first"))
			var asked atomic.Int64
			o.guard(func(w http.ResponseWriter, _ *http.Request) bool {
				asked.Add(1)
				w.Header().Set("Retry-After", after)
				w.WriteHeader(http.StatusTooManyRequests)
				return false
			})
			opt := from(o)
			opt.Remote.Every = time.Second
			b := newBed(t, opt, "")
			began := time.Now()
			ready(t, b.Library)
			if took := time.Since(began); took > 8*time.Second+overload.Late() {
				t.Errorf("the first attempt took %s", took)
			}
			b.is("HTTP 429")
			time.Sleep(4*time.Second - time.Since(began))
			if n, took := asked.Load(), time.Since(began); float64(n) > 2*took.Seconds() {
				t.Errorf("it was asked %d times in %s", n, took)
			}
			o.guard(nil)
			comesTo(t, b, "a=first")
			b.is("")
		})
	}
}
