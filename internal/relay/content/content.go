// Package content applies content rules to messages, and sums up the findings outside of
// calls.
package content

import (
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// Members that are not searched: names that the relay acts on, and handles that only their
// owner can read.
var (
	requestSkip = []string{"name", "uri", "ref", "cursor", "requestState", "taskId", "_meta"}
	resultSkip  = []string{"resultType", "nextCursor", "requestState", "taskId"}
	eventSkip   = []string{"progressToken", "requestId", "uri", "taskId", "level"}
)

// Findings holds the findings in the messages of one call, by rule and result.
type Findings struct {
	mu   sync.Mutex
	seen []Finding
}

// Finding counts the finds of one rule with one result: found, redacted or blocked.
type Finding struct {
	Rule, Result string
	N            int64
}

// Add counts finds.
func (f *Findings) Add(rule, result string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.seen {
		if f.seen[i].Rule == rule && f.seen[i].Result == result {
			f.seen[i].N += n
			return
		}
	}
	f.seen = append(f.seen, Finding{rule, result, n})
}

// Take returns the findings and removes them.
func (f *Findings) Take() []Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.seen
	f.seen = nil
	return out
}

// look applies the rules to raw, notes the finds, and returns what may be forwarded.
func look(s *scan.Scanner, f *Findings, raw []byte, skip []string) ([]byte, error) {
	r := s.Look(raw, skip...)
	if r.Found == nil {
		return raw, nil
	}
	result := "found"
	switch {
	case r.Blocked:
		result = "blocked"
	case s.Mode() == scan.Redact:
		result = "redacted"
	}
	for _, c := range r.Found {
		f.Add(rule(c.Rule), result, c.N)
	}
	if r.Blocked {
		return nil, &failure.Content{Rule: rule(r.Found[0].Rule)}
	}
	return r.Out, nil
}

// rule returns the name of a content rule as records have it.
func rule(name string) string { return "scan." + name }

// lookAtError is look for the error of a server.
func lookAtError(s *scan.Scanner, f *Findings, e *wire.Error) (*wire.Error, error) {
	raw := e.Raw
	if raw == nil {
		raw = rawjson.AppendQuote(nil, e.Message)
		raw = append(append([]byte(`{"message":`), raw...), '}')
		if e.Data != nil {
			raw = rawjson.Set(raw, rawjson.Edit{Key: "data", Value: e.Data})
		}
	}
	out, err := look(s, f, raw, []string{"code"})
	if err != nil || string(out) == string(raw) {
		return e, err
	}
	message, _ := rawjson.GetString(out, "message")
	clean := &wire.Error{Code: e.Code, Message: message, Data: rawjson.Get(out, "data")}
	if e.Raw != nil {
		clean.Raw = out
	}
	return clean, nil
}
