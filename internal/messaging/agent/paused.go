package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/upstream"
)

// progressEvery is how often a waiting call reports progress, if its client asked for it.
const progressEvery = 15 * time.Second

// looking reads the book for a call that waits. It returns the peer that it has read, and
// whether it has found what the call waits for.
type looking func(ctx context.Context) (peer string, found bool, err error)

// await calls look, and again after each signal of the mailbox of peer and of topics, until it
// finds something or the time is over; end then makes the answer. The signals are joined before
// the first look, so that none is missed. The right to read is checked again before each further
// look, because policy may have changed. If the first look finds nothing, the error is a *paused.
func (c *call) await(ctx context.Context, limit time.Duration, peer string, topics []string, look looking, end func(ending) (*answer, error)) (*answer, error) {
	leave, ok := c.s.sessions.wait(c.session, c.takes)
	if !ok {
		return nil, &problem{code: RateLimited, text: fmt.Sprintf("%d calls of this session wait already, or %d of this principal", maxWaiting, maxWaitingOfAll)}
	}
	p := &paused{c: c, look: look, end: end, topics: topics, begin: time.Now(), timer: time.After(limit), leave: leave}
	p.join(peer)
	waits := false
	defer p.release(&waits)
	if found, err := p.search(ctx); err != nil || found {
		return p.over(endFound, err)
	}
	c.pass.Waits()
	if c.progress != nil {
		p.tick = time.Tick(progressEvery)
		c.progress(0)
	}
	waits = true
	return nil, p
}

// paused is a call that waits. It is the error of its verb until it is over.
type paused struct {
	c      *call
	look   looking
	end    func(ending) (*answer, error)
	peer   string   // whose mailbox it waits for
	topics []string // what else it waits for

	begin       time.Time
	wake        <-chan struct{}
	timer, tick <-chan time.Time
	came        event
	leave, part func() // give back its place and its signals
}

// event is what a paused call has waited for.
type event uint8

const (
	eventSignal event = iota
	eventTick
	eventTime
	eventClosing
	eventCancel
)

func (p *paused) Error() string { return "the call waits" }

// await waits for the next event.
func (p *paused) await(ctx context.Context) {
	select {
	case <-p.wake:
		p.came = eventSignal
	case <-p.tick:
		p.came = eventTick
	case <-p.timer:
		p.came = eventTime
	case <-p.c.s.closing.Done():
		p.came = eventClosing
	case <-ctx.Done():
		p.came = eventCancel
	}
}

// resume continues the call after an event. A signal may have come at the same time as the
// end of the time, so that is looked at too.
func (p *paused) resume(ctx context.Context) (*answer, error) {
	waits := false
	defer p.release(&waits)
	switch p.came {
	case eventTick:
		p.c.progress(int(time.Since(p.begin).Seconds()))
		waits = true
		return nil, p
	case eventClosing:
		return p.over(endShutdown, nil)
	case eventCancel:
		return p.over("", ctx.Err())
	}
	if found, err := p.lookAgain(ctx); err != nil || found {
		return p.over(endFound, err)
	}
	if p.came == eventTime {
		return p.over(endTimeout, nil)
	}
	waits = true
	return nil, p
}

// lookAgain checks the right of the caller again, then looks.
func (p *paused) lookAgain(ctx context.Context) (bool, error) {
	if d := p.c.ask(p.c.verb.action, nil); !d.Allow {
		return false, denied(d.Rule)
	}
	return p.search(ctx)
}

// search looks. A session that has lost its peer may have another one when the call looks: the
// call then waits for the mailbox of that one, and looks again.
func (p *paused) search(ctx context.Context) (bool, error) {
	for {
		peer, found, err := p.look(ctx)
		if err != nil || found || peer == p.peer {
			return found, err
		}
		p.part()
		p.join(peer)
	}
}

// join joins the signals of a peer's mailbox and of the other topics.
func (p *paused) join(peer string) {
	p.peer = peer
	p.wake, p.part = p.c.s.signals.join(append([]string{mail.TopicMailbox(peer)}, p.topics...)...)
}

// release gives back the place and the signals of the call unless it goes on waiting, also after
// a panic.
func (p *paused) release(waits *bool) {
	if !*waits {
		p.part()
		p.leave()
	}
}

// over returns the answer at the end of the wait.
func (p *paused) over(end ending, err error) (*answer, error) {
	if err != nil {
		return nil, err
	}
	return p.end(end)
}

// waiting returns the paused call in the form in which it leaves the server.
func (p *paused) waiting(cn *conn) *upstream.Waiting {
	return &upstream.Waiting{Await: p.await, Go: func(ctx context.Context) (upstream.Reply, error) {
		a, err := p.resume(ctx)
		return p.c.finish(ctx, cn, a, err)
	}}
}
