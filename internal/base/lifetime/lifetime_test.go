package lifetime_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorward/doorward/internal/base/lifetime"
)

// makers are the two ways to derive a context; the tests hold for both.
var makers = map[string]func(context.Context) (context.Context, context.CancelFunc){
	"of this package":    lifetime.New,
	"of package context": context.WithCancel,
}

func TestEndsAsTheOtherDoes(t *testing.T) {
	for name, derive := range makers {
		for inner, again := range makers {
			t.Run(name+", below it one "+inner, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					above, endAbove := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
					ctx, end := derive(above)
					defer end()
					below, endBelow := again(ctx)
					defer endBelow()
					called := 0
					context.AfterFunc(below, func() { called++ })
					if ctx.Err() != nil || below.Err() != nil || isDone(ctx) || isDone(below) || below.Value(key{}) != "kept" {
						t.Fatal("ended at its beginning, or without the values above it")
					}
					endAbove()
					synctest.Wait()
					for _, c := range []context.Context{ctx, below} {
						if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), context.Canceled) || !isDone(c) {
							t.Errorf("%v after the end above it", c.Err())
						}
					}
					if called != 1 {
						t.Errorf("%d calls at the end", called)
					}
				})
			})
		}
	}
}

type key struct{}

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

func TestChildEndsBeforeEndReturns(t *testing.T) {
	ctx, end := lifetime.New(t.Context())
	child, endChild := context.WithCancel(ctx)
	defer endChild()
	grandchild, endGrandchild := lifetime.New(child)
	defer endGrandchild()
	end()
	if child.Err() == nil {
		t.Error("a child goes on after end has returned")
	}
	select {
	case <-grandchild.Done():
	case <-time.After(30 * time.Second):
		t.Error("a grandchild goes on")
	}
}

func TestDeadlineOfTheParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		above, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ctx, end := lifetime.New(above)
		defer end()
		if _, ok := ctx.Deadline(); !ok {
			t.Error("no deadline")
		}
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("ended with %v", ctx.Err())
		}
	})
}

func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := lifetime.New(t.Context())
		var stops []func() bool
		called := make([]int, 5)
		for i := range called {
			stops = append(stops, context.AfterFunc(ctx, func() { called[i]++ }))
		}
		for _, i := range []int{2, 4, 0} { // one between others, the first and the last of the list
			if !stops[i]() || stops[i]() {
				t.Errorf("call %d was not stopped, or twice", i)
			}
		}
		end()
		end()
		synctest.Wait()
		for i, n := range called {
			if want := i % 2; n != want {
				t.Errorf("call %d was made %d times, want %d", i, n, want)
			}
		}
		if stops[1]() {
			t.Error("a call was stopped after it was made")
		}
	})
}

func TestDerivedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := lifetime.New(t.Context())
		end()
		called := false
		context.AfterFunc(ctx, func() { called = true })
		child, endChild := lifetime.New(ctx)
		defer endChild()
		if child.Err() == nil || !isDone(child) {
			t.Error("a child of an ended context has not ended when New returns")
		}
		synctest.Wait()
		if !called || child.Err() == nil || !isDone(child) || !isDone(ctx) {
			t.Error("what was derived from an ended context goes on")
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	for range 200 {
		ctx, end := lifetime.New(t.Context())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				stop := context.AfterFunc(child, func() {})
				runtime.Gosched()
				stop()
			})
			all.Go(end)
		}
		all.Wait()
		<-ctx.Done()
	}
}

// TestNothingIsKept shows the purpose of the package.
func TestNothingIsKept(t *testing.T) {
	size := func(derive func(context.Context) (context.Context, context.CancelFunc)) uint64 {
		const n = 4000
		kept := make([]context.Context, n)
		before := heap()
		for i := range kept {
			ctx, end := derive(context.Background())
			_, cancel := context.WithTimeout(ctx, time.Hour)
			cancel()
			kept[i] = ctx
			_ = end
		}
		after := heap()
		runtime.KeepAlive(kept)
		return (after - before) / n
	}
	if ours, theirs := size(lifetime.New), size(context.WithCancel); ours > 220 || ours+150 > theirs {
		t.Errorf("%d bytes, and %d of package context", ours, theirs)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
