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

// In all functions of this file a nil s has no rules and lets every message through
// unchanged.

// Request applies the rules to a request to a server. Headers that repeat parameters are cut
// like the parameters, so that they stay equal.
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

// Reply applies the rules to a server's answer. Lists are skipped: they are compared with
// what was approved and cleaned, and cutting names out of them would break calls.
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

// Event applies the rules to a message of a server that is no answer. False: it must not be
// forwarded.
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

// Answer applies the rules to a client's answer to a server's question.
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

// Notice applies the rules to a client's notification; false: it must not be forwarded.
func Notice(s *scan.Scanner, f *Findings, params []byte) ([]byte, bool) {
	if s == nil {
		return params, true
	}
	out, err := look(s, f, params, eventSkip)
	return out, err == nil
}
