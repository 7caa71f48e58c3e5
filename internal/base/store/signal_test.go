package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// limit is far more than anything here takes.
const limit = 20 * time.Second

// ear counts the topics that a listener heard, and apart from them the empty topic.
type ear struct {
	mu    sync.Mutex
	heard map[string]int
	empty int
}

func (e *ear) hear(topic string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if topic == "" {
		e.empty++
		return
	}
	if e.heard == nil {
		e.heard = make(map[string]int)
	}
	e.heard[topic]++
}

func (e *ear) times(topic string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if topic == "" {
		return e.empty
	}
	return e.heard[topic]
}

func (e *ear) wait(t *testing.T, topic string, limit time.Duration) time.Duration {
	t.Helper()
	begun := time.Now()
	doortest.Until(t, limit, topic+" is heard", func() bool { return e.times(topic) > 0 })
	return time.Since(begun)
}

// waitBehind waits for one more signal, of another daemon. The server of PostgreSQL sends
// signals in the order of their commits, also to the daemon that they are from.
func (e *ear) waitBehind(t *testing.T, from *DB) {
	t.Helper()
	topic := rand.Text()
	await(t, "signal behind the others", func() bool { // one from before the first LISTEN is not heard
		must(t, from.Write(t.Context(), signals(topic)))
		return e.times(topic) > 0
	})
}

func signals(topics ...string) func(*Tx) error {
	return func(tx *Tx) error {
		for _, topic := range topics {
			tx.Signal(topic)
		}
		return nil
	}
}

func TestASignalIsHeardOnceAfterTheCommit(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		other := db // a daemon behind whose signals those of db are heard
		if p.dsn != "" {
			other = p.open(t, Options{})
		}
		var e ear
		stop := db.Listen(e.hear)
		seen := make(chan int64, 10)
		defer db.Listen(func(topic string) {
			if topic == "done" {
				seen <- number(t, db, `SELECT count(*) FROM kv`)
			}
		})()
		must(t, db.Write(t.Context(), func(tx *Tx) error {
			tx.Signal("done")
			tx.Signal("done")
			return put("k", 1)(tx)
		}))
		if n := <-seen; n != 1 {
			t.Errorf("when it was signalled, %d rows were there", n)
		}
		_ = db.Write(t.Context(), func(tx *Tx) error { tx.Signal("failed"); return errOdd })
		odd := `"\{},' ü`
		must(t, db.Write(t.Context(), signals(odd, "last")))
		e.wait(t, "last", limit)
		e.waitBehind(t, other)
		for topic, want := range map[string]int{"done": 1, "failed": 0, odd: 1, "last": 1} {
			if n := e.times(topic); n != want {
				t.Errorf("%q was heard %d times", topic, n)
			}
		}
		stop()
		var after ear
		defer db.Listen(after.hear)()
		must(t, db.Write(t.Context(), signals("unheard")))
		after.waitBehind(t, other)
		if e.times("unheard") > 0 {
			t.Error("heard after stop")
		}
	})
}

func TestASlowListenerDelaysNoWriterAndMayStopItself(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		hold, once := make(chan struct{}), make(chan struct{})
		var stop func()
		calls := 0
		stop = db.Listen(func(topic string) {
			if topic == "" {
				return
			}
			if calls++; calls == 1 {
				close(once)
			}
			<-hold
			stop()
		})
		for i := range 20 {
			must(t, db.Write(t.Context(), signals(fmt.Sprint(i%3))))
		}
		<-once
		close(hold)
		var e ear
		defer db.Listen(e.hear)()
		must(t, db.Write(t.Context(), signals("after")))
		e.wait(t, "after", limit)
		if calls != 1 {
			t.Errorf("%d calls after stop", calls-1)
		}
	})
}

// Two daemons on one schema of PostgreSQL hear each other. A daemon on another
// schema does not hear them.
func TestSignalsReachOtherDaemonsOnTheDatabase(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	a, b, other := p.open(t, Options{}), p.open(t, Options{}), p.open(t, Options{Schema: "other"})
	var atA, atB, atOther ear
	defer a.Listen(atA.hear)()
	defer b.Listen(atB.hear)()
	defer other.Listen(atOther.hear)()
	await(t, "three listeners", func() bool {
		return number(t, a, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`) == 3
	})
	var slowest time.Duration
	for i := range 20 {
		topic := fmt.Sprint(`t"\,{} `, i)
		must(t, a.Write(t.Context(), signals(topic)))
		slowest = max(slowest, atB.wait(t, topic, limit))
	}
	t.Log("the slowest took", slowest)
	_ = a.Write(t.Context(), func(tx *Tx) error { tx.Signal("failed"); return errOdd })
	must(t, b.Write(t.Context(), signals("back")))
	atA.wait(t, "back", limit)
	atA.waitBehind(t, b)
	atB.waitBehind(t, a)
	atOther.waitBehind(t, p.open(t, Options{Schema: "other"}))
	for i := range 20 {
		topic := fmt.Sprint(`t"\,{} `, i)
		if atA.times(topic) != 1 || atB.times(topic) != 1 || atOther.times(topic) != 0 {
			t.Errorf("%s: %d here, %d there, %d elsewhere", topic, atA.times(topic), atB.times(topic), atOther.times(topic))
		}
	}
	if atB.times("failed") > 0 {
		t.Error("what was rolled back was heard")
	}
}

func TestATopicThatIsTooLongIsRefusedWithItsJob(t *testing.T) {
	t.Parallel()
	db := place{dsn: doortest.Postgres(t)}.open(t, Options{})
	err := db.Write(t.Context(), func(tx *Tx) error {
		tx.Signal(strings.Repeat("x", 9000))
		return put("k", 1)(tx)
	})
	if err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("it came back as %v", err)
	}
	if got := keys(t, db); got != "" {
		t.Errorf("there are %s", got)
	}
}
