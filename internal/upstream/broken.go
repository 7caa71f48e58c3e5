package upstream

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// maxBad bounds the messages refused in a row, their bytes being bounded by one
// message's size. Children do print other text on standard output, so each
// good message sets the count back: a server that prints one line a call is
// merely untidy.
const maxBad = 100

// refused deals with a message that the strict parser did not accept. An answer
// that can be told to belong to a call costs that call; anything else is
// skipped and counted, until there is too much of it in a row.
func (in *intake) refused(b []byte) error {
	in.bad++
	in.badSize += len(b)
	g := guess(b)
	switch {
	case !g.message:
		in.stream.srv.counts.garbage.Add(1)
		in.stream.srv.said.garbled(b)
	default:
		in.stream.srv.counts.violations.Add(1)
		in.blame(g)
	}
	if in.bad > maxBad || in.badSize > in.stream.srv.def.MaxMessage {
		return newFault(ErrProtocol, "too much that is no message in a row")
	}
	return nil
}

// blame fails the call whose answer was refused: the one it names, or the only
// one it can be.
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

// guessed is what a refused message seems to have been.
type guessed struct {
	message bool  // it has a jsonrpc member
	answer  bool  // it has no method
	id      int64 // its only id, 0 when there is none or several
}

// guess reads a refused message once more and forgivingly. Nothing of it is
// used but the question whose answer it may have been, and a wrong guess costs
// no more than a call of the same server.
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
