package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// answer is the result of a tool: text, and structured content. Some clients show their
// model only the one, and some only the other; all show a result that has only text. An
// answer with bodies is therefore only text, unless the caller asks for JSON.
type answer struct {
	text   string
	out    any
	failed bool
	bare   bool   // without structured content
	plain  bool   // the names of all its members are the program's own, and none is that of a question
	then   func() // called before the answer is sent to a client that is still connected; nil: nothing
}

// result is a CallToolResult.
type result struct {
	Content    []textContent `json:"content"`
	Structured any           `json:"structuredContent,omitempty"`
	Failed     bool          `json:"isError,omitempty"`
	Type       string        `json:"resultType,omitempty"`
}

type textContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// encode returns the raw result in the client's era.
func (a *answer) encode(modern bool) ([]byte, error) {
	r := result{Content: []textContent{{"text", a.text}}, Structured: a.out, Failed: a.failed}
	if a.bare {
		r.Structured = nil
	}
	if modern {
		r.Type = "complete"
	}
	return marshal(r)
}

// marshal is json.Marshal without HTML escapes, which need bytes and protect nothing
// here.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// stamp formats a time of the book for the schemas.
func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// stampOr is stamp; a zero time gives an empty text.
func stampOr(ms int64) string {
	if ms == 0 {
		return ""
	}
	return stamp(ms)
}

func messages(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

// answer returns the error as the result of a tool.
func (p *problem) answer() *answer {
	f := p.failure()
	text := f.Error.Code + ": " + f.Error.Message
	if f.Error.RetryMS > 0 {
		text += fmt.Sprintf(" (try again in %d ms)", f.Error.RetryMS)
	}
	if names, ok := p.details["suggestions"].([]string); ok && len(names) > 0 {
		text += fmt.Sprintf("; did you mean %v?", names)
	}
	return &answer{text: text, out: f, failed: true}
}
