package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon/history"
)

const (
	// liveEvery is the interval at which the log is checked for an open page.
	liveEvery = 2 * time.Second
	liveBeat  = 15 * time.Second
	liveWrite = 10 * time.Second
	// liveLook is the number of new lines that are searched for one that the console's own
	// requests did not cause.
	liveLook = 200
	// mostLive is the largest number of streams at once.
	mostLive = 32
)

// live serves an event stream that announces new records; the page then requests its live part.
// It begins after the last record before the page was made, so that none is missed. The stream
// is one act, however long it lasts, and ends with its session. It does not keep the session
// alive.
func (c *Console) live(q *request) error {
	defer c.streams.Add(-1)
	if c.streams.Add(1) > mostLive {
		http.Error(q.w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
		return nil
	}
	q.w.Header().Set("Content-Type", "text/event-stream")
	l := &liveStream{request: q, rc: http.NewResponseController(q.w), seq: q.after(), said: time.Now()}
	defer l.rc.SetWriteDeadline(time.Time{})
	tick := time.Tick(liveEvery)
	for ok := l.send(": open\n\n"); ok; {
		select {
		case <-q.ctx.Done():
			return nil
		case <-c.stopped.Done():
			return nil
		case <-q.s.over:
			l.send("event: over\ndata:\n\n")
			return nil
		case <-tick:
			ok = l.look()
		}
	}
	return nil
}

// after returns the number of the record after which a page continues; without one, that of the
// last record.
func (q *request) after() uint64 {
	last := q.c.o.Seq()
	if n, err := strconv.ParseUint(q.in.Get("after"), 10, 64); err == nil {
		return min(n, last)
	}
	return last
}

// liveStream is one event stream.
type liveStream struct {
	*request
	rc   *http.ResponseController
	seq  uint64    // the last record that the page was told of
	said time.Time // time of the last message
}

// look sends an event if there are new records, and otherwise a keep-alive every liveBeat, so
// that a closed page is noticed. It returns false when the stream is over.
func (l *liveStream) look() bool {
	before := l.seq
	l.seq = l.c.o.Seq()
	switch {
	case l.seq != before && l.c.news(l.ctx, before):
		return l.send("event: changed\ndata:\n\n")
	case time.Since(l.said) > liveBeat:
		return l.c.sessions.find(cookie(l.r, l.v), l.v) != nil && l.send(": beat\n\n")
	}
	return true
}

func (l *liveStream) send(text string) bool {
	l.said = time.Now()
	if l.rc.SetWriteDeadline(time.Now().Add(liveWrite)) != nil {
		return false
	}
	_, err := fmt.Fprint(l.w, text)
	return err == nil && l.rc.Flush() == nil
}

// news reports whether a record after seq has another cause than the operator's page views,
// which would make the page refresh itself without end.
func (c *Console) news(ctx context.Context, seq uint64) bool {
	looked := 0
	for line, err := range auditlog.Backwards(ctx, c.o.AuditDir) {
		if err != nil || history.SeqOf(line) <= seq {
			return false
		}
		if looked++; looked > liveLook || !bytes.Contains(line, []byte(`"action":"admin"`)) {
			return true
		}
	}
	return false
}
