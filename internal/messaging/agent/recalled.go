package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// recalled sends a message between peers that the book recalls, without reading them. The
// book compares them in the transaction that stores the message, so policy has decided on
// what is true then. If nothing was done it returns neither an answer nor an error: the
// peers are not recalled or have changed, or policy denies or holds the message. The caller
// then reads the peers and decides again.
func recalled(ctx context.Context, c *call, d mail.Draft, addresses []string) (*answer, error) {
	me, peers, ok := c.s.o.Book.Known.Recall(c.owner, addresses)
	if !ok {
		return nil, nil
	}
	trial := *c
	trial.details = append(slices.Clip(trial.details), peerFields(me)...)
	to, err := addressing{&trial}.decided(ctx, me, peers, addresses)
	if err != nil || trial.asked.Rule != "" {
		return nil, nil
	}
	for i := range to {
		to[i].As = &peers[i]
	}
	d.To, d.From = to, &me
	a, err := stored(ctx, &trial, d)
	switch {
	case err == nil:
		c.as(me)
		return a, nil
	case refusedNow(err):
		return nil, nil
	}
	c.details = trial.details
	return nil, c.addressing.about(err, d.To)
}

// refusedNow reports whether the book has refused the message and done nothing. The reason
// may not hold for the peers as they are now.
func refusedNow(err error) bool {
	var e *mail.Error
	if errors.As(err, &e) {
		return e.Code != mail.StoreUnavailable && e.Code != mail.AuditUnavailable
	}
	return errors.Is(err, mail.ErrChanged)
}
