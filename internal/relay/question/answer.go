package question

import (
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/upstream"
)

// Answers to a server that may not ask, or whose client cannot be asked.
var (
	declined   = upstream.Reply{Result: []byte(`{"action":"decline"}`)}
	Cancelled  = upstream.Reply{Result: []byte(`{"action":"cancel"}`)}
	NotAskable = upstream.Reply{Error: failure.NoMethod}
)

// Refusal answers a question that is not passed on.
func Refusal(method string) upstream.Reply {
	if method == policy.AskElicitation {
		return declined
	}
	return NotAskable
}
