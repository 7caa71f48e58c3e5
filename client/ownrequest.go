package client

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// ask sends a request of the shim in the client's session and waits for its
// result. The error is an *RPCError if the answer is a JSON-RPC error.
func (l *legacySession) ask(s *shim, method string, params []byte) ([]byte, error) {
	for again := true; ; again = false {
		h, session := l.headers()
		result, err := l.askIn(s, h, method, params)
		if !errors.Is(err, errForgotten) || session == "" || !again {
			return result, err
		}
		if err := l.reopen(s, session); err != nil {
			return nil, err
		}
	}
}

// errForgotten means that the daemon does not know the session of a request, which was not
// carried out.
var errForgotten = errors.New("the daemon does not know the session")

// askIn is ask for the session in the headers h. The error wraps errForgotten if the daemon
// does not know that session.
func (l *legacySession) askIn(s *shim, h http.Header, method string, params []byte) ([]byte, error) {
	id := wire.ID(rawjson.AppendQuote(nil, "doorward-"+strconv.FormatInt(l.asked.Add(1), 10)))
	m := &wire.Message{Kind: wire.Request, ID: id, Method: method, Params: params}
	resp, err := s.c.post(s.ctx, s.path, m, rawjson.AppendRequest(nil, id, method, params), h)
	if err != nil {
		return nil, err
	}
	result, err := l.result(s, id, resp)
	if resp.StatusCode == http.StatusNotFound {
		err = errors.Join(errForgotten, err)
	}
	return result, err
}

// result reads the answer to a request of the shim. Other messages on the
// stream go to the client.
func (l *legacySession) result(s *shim, id wire.ID, resp *http.Response) (result []byte, err error) {
	defer resp.Body.Close()
	failed := error(io.ErrUnexpectedEOF)
	err = s.c.messages(resp, func(got *wire.Message, raw []byte) bool {
		switch {
		case got.Kind != wire.Response:
			s.deliver(got, raw)
			return true
		case got.Error != nil:
			failed = rpcError(got)
		case string(got.ID) == string(id):
			result, failed = append([]byte(nil), got.Result...), nil
		}
		return false
	})
	return result, errors.Join(failed, err)
}
