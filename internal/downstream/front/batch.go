package front

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// batch serves a JSON array, which only 2025-03-26 has (2025-03-26 Overview, "Batching").
// Each element is a separate exchange with a decision of its own.
func (f streamable) batch(in *inbound, body []byte) {
	id := in.r.Header.Get("Mcp-Session-Id")
	s, e := f.d.earlier.found(in.r, id, in.who, in.server)
	switch {
	case s == nil && id != "":
		fail(in.w, statusOfMiss(e), nil, e)
		return
	case s == nil, s.version.name() != protocol.V20250326:
		fail(in.w, http.StatusBadRequest, nil, errBatch)
		return
	}
	if e := s.version.differs(in.header); e != nil {
		fail(in.w, http.StatusBadRequest, nil, e)
		return
	}
	f.d.seen(in.who, s)
	msgs, _, err := wire.ParseBatch(body, wire.FromClient)
	if err != nil {
		fail(in.w, http.StatusBadRequest, nil, syntax(err))
		return
	}
	for i := range msgs {
		if msgs[i].Method == "initialize" {
			fail(in.w, http.StatusBadRequest, nil, errInBatch)
			return
		}
	}
	answers := f.each(in, msgs, s)
	if len(answers) == 0 {
		in.w.WriteHeader(http.StatusAccepted)
		return
	}
	writeJSON(in.w, http.StatusOK, joinArray(answers))
}

// batchWidth is the number of elements of one batch that run at a time.
const batchWidth = 8

// each runs the elements of a batch and collects the answers, in order. Messages of servers
// during the batch go to the standalone stream.
func (f streamable) each(in *inbound, msgs []wire.Message, s *Session) [][]byte {
	answers := make([][]byte, len(msgs))
	width := make(chan struct{}, batchWidth)
	var wg sync.WaitGroup
	for i := range msgs {
		m := &msgs[i]
		if m.Kind != wire.Request {
			f.oneWay(in, m, s)
			continue
		}
		width <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-width }()
			answers[i] = f.element(in, m, s)
		}()
	}
	wg.Wait()
	out := answers[:0]
	for _, a := range answers {
		if a != nil {
			out = append(out, a)
		}
	}
	return out
}

func (f streamable) element(in *inbound, m *wire.Message, s *Session) []byte {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	x := f.exchange(in, m, s, &stream{log: s.main, shared: true})
	switch err := s.enter(m.ID, cancel); {
	case errors.Is(err, errAllBusy):
		return appendReply(nil, m.ID, f.noRoom(x, RuleCalls))
	case err != nil:
		return rawjson.AppendError(nil, m.ID, errTwice)
	}
	defer s.leave(m.ID)
	defer f.d.during(x, cancel)()
	reply := f.d.atStop(x, f.d.o.Handler.Request(ctx, x).Answer(ctx))
	if reply.None {
		return nil
	}
	return appendReply(nil, m.ID, reply)
}

func joinArray(items [][]byte) []byte {
	out := []byte{'['}
	for i, a := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, a...)
	}
	return append(out, ']')
}
