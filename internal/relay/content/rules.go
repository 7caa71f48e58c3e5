package content

import (
	"slices"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// Without rules, s is nil and every message goes on as it is.

// Request looks at what goes to a server. Headers that repeat parameters are cut as the
// parameters are, so that they stay equal.
func Request(s *scan.Scanner, f *Findings, req *upstream.Request) error {
	if s == nil {
		return nil
	}
	params, err := look(s, f, req.Params, requestSkip)
	if err != nil {
		return err
	}
	req.Params = params
	if s.Mode() == scan.Monitor {
		return nil
	}
	for key, values := range req.Headers {
		values = slices.Clone(values)
		for i, v := range values {
			text, err := protocol.DecodeHeader(v)
			if err != nil {
				text = v
			}
			clean, r := s.Text(text)
			if r.Blocked {
				return &failure.Content{Rule: rule(r.Found[0].Rule)}
			}
			if r.Found != nil {
				values[i] = protocol.EncodeHeader(clean)
			}
		}
		req.Headers[key] = values
	}
	return nil
}

// Reply looks at what a server answered. Lists are not results: they are pinned and
// cleaned, and cutting names out of them would break calls.
func Reply(s *scan.Scanner, f *Findings, method string, reply upstream.Reply) (upstream.Reply, error) {
	if s == nil || listing.Is(method) {
		return reply, nil
	}
	if reply.Error == nil {
		result, err := look(s, f, reply.Result, resultSkip)
		return upstream.Reply{Result: result}, err
	}
	e, err := lookAtError(s, f, reply.Error)
	return upstream.Reply{Error: e}, err
}

// Event looks at what a server says on the way to an answer, or unasked. False: it may
// not go on.
func Event(s *scan.Scanner, f *Findings, e *upstream.Event) bool {
	if s == nil {
		return true
	}
	params, err := look(s, f, e.Params, eventSkip)
	if err != nil {
		return false
	}
	e.Params, e.Plain = params, e.Plain && rawjson.Same(params, e.Params)
	return true
}

// Answer looks at what a client answers a server's question with.
func Answer(s *scan.Scanner, f *Findings, reply upstream.Reply) upstream.Reply {
	if s == nil || reply.Result == nil {
		return reply
	}
	result, err := look(s, f, reply.Result, nil)
	if err != nil {
		return question.NotAskable
	}
	return upstream.Reply{Result: result}
}

// Notice looks at a client's notification; false when it may not go on.
func Notice(s *scan.Scanner, f *Findings, params []byte) ([]byte, bool) {
	if s == nil {
		return params, true
	}
	out, err := look(s, f, params, eventSkip)
	return out, err == nil
}
