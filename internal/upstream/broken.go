package upstream

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"
)

// maxBad bounds the invalid messages that are refused in a row.
const maxBad = 100

// badTime is the time in which what is refused in a row is counted together. Programs do print
// other text on standard output, and clients skip any number of such lines. So only the size of
// what is refused is bounded, by MaxMessage in this time: a program that prints without end is
// ended.
const badTime = time.Minute

// refused handles a message that the strict parser did not accept. If it can be assigned to a
// call as its answer, that call fails. Any other one is skipped and counted; the error says
// that there was too much in a row.
func (in *intake) refused(b []byte) error {
	in.count()
	in.badSize += len(b) + 1
	g := guess(b)
	switch {
	case !g.message:
		in.stray(b)
	default:
		in.bad++
		in.stream.srv.counts.violations.Add(1)
		in.blame(g)
	}
	return in.tooMuch()
}

// stray counts what is no message. It is kept for the owner if a program printed it, and the log
// says once of each process that there is some, without the text; a text that came over the network
// is kept nowhere, because it can repeat the credential.
func (in *intake) stray(b []byte) {
	srv := in.stream.srv
	srv.counts.garbage.Add(1)
	if srv.def.Kind != KindStdio {
		return
	}
	srv.diagnostics.garbled(b)
	if !in.strayed {
		in.strayed = true
		srv.log.Warn("the program prints lines on standard output that are not MCP messages; while it starts, doorward status shows the last one", slog.Int("bytes", len(b)))
	}
}

// count forgets what was refused more than badTime ago.
func (in *intake) count() {
	if now := time.Now(); now.Sub(in.since) > badTime {
		in.bad, in.badSize, in.since = 0, 0, now
	}
}

func (in *intake) tooMuch() error {
	if in.bad > maxBad || in.badSize > in.stream.srv.def.MaxMessage {
		return newFault(ErrProtocol, "too many invalid messages, or too much output that is not messages, in a minute")
	}
	return nil
}

// blame fails the call whose answer was refused: the one that it names, or the only one in
// flight.
func (in *intake) blame(g guessed) {
	if !g.answer {
		return
	}
	id := g.id
	if id == 0 {
		id = in.stream.pending.sole()
	}
	if c, _ := in.stream.pending.take(id); c != nil {
		c.finish(Reply{}, newFault(ErrProtocol, "the answer is not valid JSON-RPC"))
	}
}

// guessed is what can be recognised in a refused message.
type guessed struct {
	message bool  // it has a jsonrpc member
	answer  bool  // it has no method
	id      int64 // its only id, 0 when there is none or several
}

// guess parses a refused message again, leniently. The result is used only to find the call
// whose answer it may have been, and a wrong guess costs at most a call of the same server.
func guess(b []byte) guessed {
	b = bytes.TrimLeft(b, " \t\r")
	if len(b) == 0 || b[0] != '{' {
		return guessed{}
	}
	g, ids := guessed{answer: true}, 0
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		return guessed{}
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			break
		}
		switch key {
		case "jsonrpc":
			g.message = true
		case "method":
			g.answer = false
		case "id":
			ids++
			g.id, _ = strconv.ParseInt(string(value), 10, 64)
		}
	}
	if ids != 1 {
		g.id = 0
	}
	return g
}
