//go:build linux

package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// delays holds the delays of notices at their sender and of open deliveries in the database.
type delays struct{ notices, rows late }

// late collects delays.
type late struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *late) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
}

// at returns the quantile share of the delays, 0 without any.
func (l *late) at(share float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0
	}
	slices.Sort(l.all)
	return l.all[int(share*float64(len(l.all)-1))].Round(time.Millisecond)
}

func (l *late) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *late) String() string {
	return fmt.Sprintf("%d, late by %s at p50, %s at p99, %s at most", l.count(), l.at(0.5), l.at(0.99), l.at(1))
}

func (d *delays) judge() error {
	for name, l := range map[string]*late{"notices": &d.notices, "open deliveries": &d.rows} {
		if l.count() == 0 {
			return fmt.Errorf("no %s were seen", name)
		}
		if p99 := l.at(0.99); p99 > latest {
			return fmt.Errorf("%s are %s late at p99, more than %s", name, p99, latest)
		}
	}
	return nil
}
