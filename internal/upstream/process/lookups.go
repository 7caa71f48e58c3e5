package process

import (
	"sync"
	"time"
)

// Lookups bounds what file systems are asked. One may never answer, such as a mount of FUSE whose program hangs or of
// an NFS server that is gone, and a system call that asks it cannot be given up. So at most one question of a name
// runs at a time, on a goroutine of its own. The zero value is ready for use.
type Lookups struct {
	mu    sync.Mutex
	asked map[string]*lookup
}

// lookup is a question that has not ended.
type lookup struct {
	done  chan struct{}
	since time.Time
}

// Do runs ask, and waits for its end no longer than patience. false: it has not ended, and what it writes must not be
// read. It is not run while an earlier one of the name goes on; of one that is older than patience, Do does not wait
// for the end.
func (l *Lookups) Do(name string, patience time.Duration, ask func()) bool {
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		mine, before := l.enter(name)
		switch {
		case before == nil:
			go l.run(name, mine, ask)
			return ended(mine, over)
		case time.Since(before.since) >= patience, !ended(before, over):
			return false
		}
	}
}

func ended(q *lookup, over *time.Timer) bool {
	select {
	case <-q.done:
		return true
	case <-over.C:
		return false
	}
}

// enter makes the question of a name, unless there is one.
func (l *Lookups) enter(name string) (mine, before *lookup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before = l.asked[name]; before != nil {
		return nil, before
	}
	if l.asked == nil {
		l.asked = map[string]*lookup{}
	}
	mine = &lookup{done: make(chan struct{}), since: time.Now()}
	l.asked[name] = mine
	return mine, nil
}

func (l *Lookups) run(name string, q *lookup, ask func()) {
	ask()
	l.mu.Lock()
	delete(l.asked, name)
	l.mu.Unlock()
	close(q.done)
}
