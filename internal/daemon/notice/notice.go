// Package notice notifies the operator of held calls and messages: by a program, by a signed
// webhook, and on the desktop.
//
// Invariant: a notice cannot be used to decide; it says where to decide. The arguments of a
// call leave the machine only if the configuration says so. Text that a server or an agent
// chose is never markup.
package notice

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Call is a held call or message. Args of a message are its sender, recipients and size, not
// its text.
type Call struct {
	Message                                 bool
	N                                       uint64
	Expires                                 time.Time
	Client, Principal, Server, Tool, Action string
	Args, Rest                              string // JSON; Rest is what the server gets beside the arguments
}

// Options configures the kinds of notices. A kind whose field is zero is not used.
type Options struct {
	Command []string
	// Run starts a program with additional variables, and waits for its end.
	Run     func(ctx context.Context, argv, env []string) error
	Webhook *Webhook
	Desktop string // address of the session bus
	Log     *slog.Logger
}

// mostUnderWay is the largest number of notices in progress, including the retries of
// webhooks.
const mostUnderWay = 64

// Notifier notifies the operator. It is safe for concurrent use.
type Notifier struct {
	o      Options
	ctx    context.Context
	end    context.CancelFunc
	all    sync.WaitGroup
	places chan struct{}
	left   atomic.Uint64 // notices that were dropped because too many were in progress
}

// New makes a notifier. Close ends it.
func New(o Options) *Notifier {
	n := &Notifier{o: o, places: make(chan struct{}, mostUnderWay)}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// Close ends the notices in progress.
func (n *Notifier) Close() {
	n.end()
	n.all.Wait()
}

// Tell starts a notice of every configured kind about a call, and returns at once. A failure
// is logged, and does not affect the call.
func (n *Notifier) Tell(c Call) {
	if len(n.o.Command) > 0 {
		n.begin("approvals.notify.command", func(ctx context.Context) error { return n.o.Run(ctx, n.o.Command, c.environment()) })
	}
	if n.o.Webhook != nil {
		n.begin("approvals.notify.webhook", func(ctx context.Context) error { return n.o.Webhook.send(ctx, c) })
	}
	if n.o.Desktop != "" {
		n.begin("approvals.notify.desktop", func(ctx context.Context) error { return show(ctx, n.o.Desktop, c) })
	}
}

func (n *Notifier) begin(way string, tell func(context.Context) error) {
	if n.ctx.Err() != nil {
		return
	}
	select {
	case n.places <- struct{}{}:
	default:
		n.o.Log.Warn("the operator was not told: too many notices are under way", "way", way, "left", n.left.Add(1))
		return
	}
	n.all.Go(func() {
		defer func() { <-n.places }()
		if err := tell(n.ctx); err != nil && n.ctx.Err() == nil {
			n.o.Log.Warn("the operator was not told of a held call", "way", way, "err", err)
		}
	})
}

// environment returns the variables of the program. They never contain the arguments.
func (c Call) environment() []string {
	return []string{"DOORWARD_PENDING=" + strconv.FormatUint(c.N, 10), "DOORWARD_CLIENT=" + c.Client, "DOORWARD_SERVER=" + c.Server, "DOORWARD_TOOL=" + c.Tool}
}
