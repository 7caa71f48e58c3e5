package console

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser is one Chromium with one tab.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	troubles []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.DisableGPU, chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Flag("host-resolver-rules", "MAP rebound.example 127.0.0.1"), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 {
		o = append(o, chromedp.NoSandbox) // Chromium's own does not start as root
	}
	alloc, end := chromedp.NewExecAllocator(context.Background(), o...)
	ctx, over := chromedp.NewContext(alloc)
	t.Cleanup(func() { over(); end() })
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting Chromium: %v", err)
	}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.hear(m)
		}
	}()
	return b
}

// hear notes exceptions, errors and warnings of a page, such as a blocked script.
func (b *browser) hear(m chromedp.ConsoleMessage) {
	if m.IsException() || m.Type == "error" || m.Type == "warning" {
		b.mu.Lock()
		b.troubles = append(b.troubles, m.String()+" "+m.URL)
		b.mu.Unlock()
	}
}

// complaints returns what was noted since its last call.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.troubles
	b.troubles = nil
	return out
}

func (b *browser) do(all ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, all...); err != nil {
		b.t.Fatal(err)
	}
}

// run runs a script and ignores its value.
func (b *browser) run(script string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](script))
}

// value evaluates an expression. While the browser leaves a page, it evaluates the
// expression again on the next page.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	for {
		out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		switch {
		case err == nil:
			return out
		case ctx.Err() != nil || !strings.Contains(err.Error(), "navigated"):
			b.t.Fatalf("%.80s: %v", expression, err)
		}
	}
}

func (b *browser) text(expression string) string { b.t.Helper(); return value[string](b, expression) }
func (b *browser) number(expression string) float64 {
	b.t.Helper()
	return value[float64](b, expression)
}

// words is the visible text of the page; empty while it loads.
func (b *browser) words() string { b.t.Helper(); return b.text("document.body?.innerText ?? ''") }

func (b *browser) open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// signIn opens a fresh sign-in address and waits for the page Now.
func (b *browser) signIn(h *house) {
	b.t.Helper()
	b.open(h.address())
	within(b.t, 20*time.Second, "the page Now", func() bool { return strings.HasPrefix(b.text("document.title"), "Now") })
}

func (b *browser) width(n int64) {
	b.t.Helper()
	p := emulation.SetDeviceMetricsOverrideParams{Width: n, Height: 900, DeviceScaleFactor: 1}
	if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) scheme(name string) {
	b.t.Helper()
	p := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, p); err != nil {
		b.t.Fatal(err)
	}
}
