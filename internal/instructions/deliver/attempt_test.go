package deliver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/upstream/egress"
	"github.com/doorward/doorward/test/doortest"
)

// relayed is a library that a test can replace by another one.
type relayed struct {
	Library
	to atomic.Pointer[Library]
}

func (r *relayed) now() Library {
	if l := r.to.Load(); l != nil {
		return *l
	}
	return r.Library
}

func (r *relayed) Ready(ctx context.Context) error     { return r.now().Ready(ctx) }
func (r *relayed) Set() (*document.Set, library.State) { return r.now().Set() }

// treacle is a remote store that lists many documents and serves each of them
// just within its time limit, so a first attempt takes minutes. It counts the
// documents it was asked for.
func treacle(t *testing.T) (o library.Remote, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	over := make(chan struct{})
	text := strings.Repeat("x", 100)
	sum := sha256.Sum256([]byte(text))
	var list strings.Builder
	for i := range 400 {
		fmt.Fprintf(&list, `,{"name":"d%d","class":"instructions","tier":"structural","version":"%s","description":""}`, i, hex.EncodeToString(sum[:]))
	}
	far := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/auth/templates") {
			fmt.Fprintf(w, `{"revision":"r","templates":[%s]}`, list.String()[1:])
			return
		}
		asked.Add(1)
		select {
		case <-time.After(1500 * time.Millisecond):
		case <-over:
		}
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		fmt.Fprintf(w, `{"name":%q,"class":"instructions","tier":"structural","version":"%s","text":%q}`, name, hex.EncodeToString(sum[:]), text)
	}))
	far.Config.ErrorLog = log.New(io.Discard, "", 0) // errors of connections that the cleanup breaks
	far.StartTLS()
	t.Cleanup(func() { close(over); far.Close() })
	tls := far.Client().Transport.(*http.Transport).TLSClientConfig
	return library.Remote{URL: far.URL, Client: egress.NewClient(egress.Options{AllowPrivate: true, TLSConfig: tls}),
		Authorize: func(context.Context) (string, error) { return "Bearer x", nil }}, asked
}

// TestASlowFirstAttemptIsWaitedForOnce: all requests together wait once for a slow
// first attempt, whatever their kind. Not each of them waits.
func TestASlowFirstAttemptIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	var shelf *relayed
	h := build(t, plan{nowhere: true, failClosed: true, library: func(l Library) Library { shelf = &relayed{Library: l}; return shelf }})
	c := h.modern("a", h.full())
	far, asked := treacle(t)
	slow, err := library.Open(context.Background(), library.Options{DB: h.db, Key: bytes.Repeat([]byte{7}, 32), Installation: "far", Remote: &far, Entered: Entered})
	h.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { slow.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	var as Library = slow
	shelf.to.Store(&as)
	h.s.storage.begins()
	doortest.Until(t, 20*time.Second, "the first document", func() bool { return asked.Load() > 0 })

	const times = 10
	begin := time.Now()
	for range times {
		if text, less := c.greeting("initialize"); less != Unreachable || text != Generic(Unreachable) {
			t.Errorf("%s: %s", less, text)
		}
		if got := h.s.readers.Status(h.reader(c.delivery)); got.State != "refused" || got.Reason != Unreachable {
			t.Errorf("%+v", got)
		}
		if why := h.s.Refuses(c.act("tools/call", "x")); why != Unreachable {
			t.Error(why)
		}
		if text, _ := c.tool("read", m{}); text != Generic(Unreachable) {
			t.Error(text)
		}
		if r := c.ask("prompts/list", m{}); r.Error != nil {
			t.Errorf("%+v", r)
		}
	}
	if took := time.Since(begin); took > times*patience {
		t.Errorf("%d requests of each kind took %v", times, took)
	}
	if err := slow.Ready(withinNow()); err == nil {
		t.Error("the attempt is over: nothing was shown")
	}
}

// withinNow is a context that is already cancelled.
func withinNow() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// tardy is a library whose first look ends when a test closes there.
type tardy struct {
	Library
	there chan struct{}
}

func (d *tardy) Ready(ctx context.Context) error {
	select {
	case <-d.there:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *tardy) Set() (*document.Set, library.State) {
	select {
	case <-d.there:
		return d.Library.Set()
	default:
		set, _ := document.NewSet(nil)
		return set, library.State{Reason: "it was not looked at yet"}
	}
}

// TestDocumentsThatArriveAfterTheWaitAreDelivered: the first greeting after the
// documents arrive has them, although earlier ones waited in vain.
func TestDocumentsThatArriveAfterTheWaitAreDelivered(t *testing.T) {
	t.Parallel()
	late := &tardy{there: make(chan struct{})}
	h := build(t, plan{library: func(l Library) Library { late.Library = l; return late }})
	c := h.modern("a", h.full())
	for range 2 {
		if text, less := c.greeting("initialize"); less != Unreachable {
			t.Errorf("%s: %s", less, text)
		}
	}
	close(late.there)
	if text, less := c.greeting("initialize"); less != "" || !strings.Contains(text, plantedPlan) {
		t.Errorf("%s: %s", less, text)
	}
}
