//go:build linux

// Sweep measures whether the mailbox sweep of a daemon is in time while it has a backlog.
//
//	go run ./test/bench/sweep                              an hour, a backlog of a million every ten minutes
//	go run ./test/bench/sweep -for 2m -backlog 100000      a first look
//
// The daemon is the real one, on SQLite. The backlog and its additions are confirmed deliveries
// that are due for deletion, written into its database by this program. Meanwhile an agent sends
// messages that expire unread after 60 to 80 seconds, and waits for their notices; another one
// receives messages and never confirms them, so that their leases end. The limit is a delay of 2
// seconds at the 99th percentile, for the notices at the sender and for every open delivery in
// the database. Exit status 1: a limit is missed, or the books do not balance.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// latest is the maximum delay at the 99th percentile.
const latest = 2 * time.Second

// plan holds the flags.
type plan struct {
	program string
	backlog int
	rate    int // deliveries added per minute
	length  time.Duration
	again   time.Duration // interval at which the backlog is added again
}

func main() {
	var p plan
	flag.StringVar(&p.program, "doorward", "bin/doorward", "the `program`")
	flag.IntVar(&p.backlog, "backlog", 1_000_000, "deliveries that are due at the start")
	flag.IntVar(&p.rate, "rate", 100_000, "deliveries a minute that become due")
	flag.DurationVar(&p.length, "for", time.Hour, "how long")
	flag.DurationVar(&p.again, "again", 10*time.Minute, "after how long as many become due at once again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sweep: error:", err)
		os.Exit(1)
	}
}

func (p *plan) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "doorward-sweep-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &daemon{program: p.program, dir: dir}
	if err := d.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop(), sound(d.state())) }()
	model, err := d.model(ctx)
	if err != nil {
		return err
	}
	book, err := open(filepath.Join(d.state(), "doorward.db"), model)
	if err != nil {
		return err
	}
	defer book.close()
	begun := time.Now()
	if err := book.add(ctx, p.backlog); err != nil {
		return err
	}
	fmt.Printf("%d deliveries added in %s\n", p.backlog, time.Since(begun).Round(time.Second))
	return p.watch(ctx, d, book)
}

// watch runs the load and the measurements for the length of the plan.
func (p *plan) watch(ctx context.Context, d *daemon, b *book) error {
	ctx, cancel := context.WithTimeout(ctx, p.length)
	defer cancel()
	seen := &delays{}
	failed := make(chan error, 4)
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return p.feed(ctx, b) },
		func(ctx context.Context) error { return b.look(ctx, &seen.rows) },
		func(ctx context.Context) error { return d.expire(ctx, &seen.notices) },
		d.forget,
	} {
		go func() { failed <- part(ctx) }()
	}
	var err error
	for left, tick := cap(failed), time.Tick(time.Minute); left > 0; {
		select {
		case e := <-failed:
			left--
			if ctx.Err() == nil || !over(e) {
				err = errors.Join(err, e)
				cancel()
			}
		case <-tick:
			p.report(d, b, seen)
		}
	}
	p.report(d, b, seen)
	return errors.Join(err, seen.judge())
}

// feed adds deliveries at the rate, and the backlog at each interval.
func (p *plan) feed(ctx context.Context, b *book) error {
	begun, had, backlogs := time.Now(), b.added.Load(), 0
	for {
		if n := int(time.Since(begun) / p.again); n > backlogs {
			backlogs = n
			had += int64(p.backlog)
			if err := b.add(ctx, p.backlog); err != nil {
				return err
			}
		}
		due := int64(time.Since(begun).Minutes()*float64(p.rate)) - (b.added.Load() - had)
		if err := b.add(ctx, int(due)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second / 4):
		}
	}
}

// over reports whether an error is caused by the end of the run.
func over(err error) bool {
	return err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (p *plan) report(d *daemon, b *book, seen *delays) {
	left, err := b.left()
	if err != nil {
		fmt.Println("counting the backlog:", err)
	}
	fmt.Printf("%s backlog %7d  added %8d  processor %6.1f s  notices %s  rows %s\n",
		time.Now().Format("15:04:05"), left, b.added.Load(), d.processor().Seconds(), seen.notices.String(), seen.rows.String())
}
