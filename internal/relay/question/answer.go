package question

import (
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/upstream"
)

// Answers to a server whose question is refused or cannot be put to a client.
var (
	declined   = upstream.Reply{Result: []byte(`{"action":"decline"}`)}
	Cancelled  = upstream.Reply{Result: []byte(`{"action":"cancel"}`)}
	NotAskable = upstream.Reply{Error: failure.NoMethod}
)

// Refusal answers a question that is not forwarded.
func Refusal(method string) upstream.Reply {
	if method == policy.AskElicitation {
		return declined
	}
	return NotAskable
}

// Unanswered answers a question that the client did not answer.
func Unanswered(method string) upstream.Reply {
	if method == policy.AskElicitation {
		return Cancelled
	}
	return NotAskable
}
