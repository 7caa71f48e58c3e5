package library

import (
	"context"
	"log/slog"
	"time"
)

// leaveAfter is how long Run waits at its end for a look that hangs in a file system,
// before it abandons it. Such a look stores nothing any more.
const leaveAfter = time.Second

// Run watches the directory every second, or follows the remote, and writes the counts,
// until ctx ends.
func (l *Library) Run(ctx context.Context) {
	l.running.Store(true)
	defer l.running.Store(false)
	source := make(chan struct{})
	go func() {
		defer close(source)
		switch {
		case l.remote != nil:
			follower{l}.run(ctx)
		case l.o.Dir != "":
			l.watcher.run(ctx)
		default:
			close(l.ready)
		}
	}()
	l.tend(ctx)
	select {
	case <-source:
	case <-time.After(leaveAfter):
		l.o.Log.Warn("the instruction directory does not answer; its last scan was abandoned", "dir", l.o.Dir)
	}
}

// tendEvery is how often new counts are written, and a book that could not be read is
// read again.
const tendEvery = time.Second

// tend is the part of Run that uses only the database.
func (l *Library) tend(ctx context.Context) {
	stop := l.o.DB.Listen(func(topic string) {
		if topic == topicLabels || topic == "" {
			l.hear()
		}
	})
	defer stop()
	t := time.Tick(l.tendEvery)
	labels := outage{log: l.o.Log, begin: "the labels of instructions cannot be read; the last known ones remain in force", end: "the labels of instructions can be read again"}
	counts := outage{log: l.o.Log, begin: "deliveries cannot be stored yet", end: "deliveries are stored again"}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-l.heard:
			labels.see(ctx, l.again(ctx))
		case <-t:
			if l.owes.Load() {
				labels.see(ctx, l.again(ctx))
			}
			counts.see(ctx, l.ledger.tend(ctx, l.o.Now()))
		}
	}
}

// outage logs the begin and the end of an outage, and not each failure.
type outage struct {
	log        *slog.Logger
	begin, end string
	down       bool
}

func (o *outage) see(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil: // the end of Run is the cause
	case err != nil && !o.down:
		o.log.Warn(o.begin, "err", err)
	case err == nil && o.down:
		o.log.Info(o.end)
	}
	o.down = err != nil
}

func (l *Library) hear() {
	select {
	case l.heard <- struct{}{}:
	default:
	}
}

// again reads the book after another process may have changed it.
func (l *Library) again(ctx context.Context) error {
	if l.remote != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dbTime)
	defer cancel()
	l.owes.Store(false)
	err := l.reread(ctx)
	if err != nil {
		l.owes.Store(true)
	}
	return err
}
