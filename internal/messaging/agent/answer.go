package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// answer is what a tool gives: text, and structured content. Some clients show
// their model the one alone, and some the other; a result of text alone is shown
// by all. So what holds bodies is text, unless a program asks for JSON.
type answer struct {
	text   string
	out    any
	failed bool
	bare   bool   // it is text alone
	then   func() // once it is on its way to a client that is still there; nil: nothing
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

// encode is the raw result in the client's era.
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

// withBodies is an answer that holds texts of peers, in the form that the caller
// wants: bodies stand in it once.
func (c *call) withBodies(text string, n int, out any) *answer {
	if c.args.str("format", "text") == "json" {
		return &answer{text: messages(n) + ", in structuredContent.", out: out}
	}
	return &answer{text: text, out: out, bare: true}
}

// marshal is json.Marshal without escapes for HTML, which cost bytes and protect
// nothing here.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// stamp is a time of the book as the schemas want it.
func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// stampOr is stamp, or nothing for a time that has not come.
func stampOr(ms int64) string {
	if ms == 0 {
		return ""
	}
	return stamp(ms)
}
