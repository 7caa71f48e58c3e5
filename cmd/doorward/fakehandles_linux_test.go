package main

import (
	"encoding/json"
	"strings"
)

// handles answers requests for what fakemcp gives out and gets back later: the state of a
// question, a cursor, a task. It returns false for other requests.
func (f *fake) handles(r fakeRequest) bool {
	switch {
	case r.Method == "resources/templates/list":
		f.page(r)
	case strings.HasPrefix(r.Method, "tasks/"):
		f.result(r, `{"resultType":"complete","taskId":"task 7","status":"completed"}`)
	case r.Method != "tools/call":
		return false
	default:
		return f.handleTool(r)
	}
	return true
}

func (f *fake) handleTool(r fakeRequest) bool {
	var p struct {
		Name           string
		InputResponses raw
		RequestState   string
	}
	_ = json.Unmarshal(r.Params, &p) // on an error the name is empty
	switch {
	case p.Name == "task":
		f.result(r, `{"resultType":"task","taskId":"task 7","status":"working"}`)
	case p.Name != "quiz":
		return false
	case p.InputResponses == nil: // asks before it answers, as 2026-07-28 does
		f.result(r, `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object"}}}},"requestState":"inner state"}`)
	default:
		f.result(r, `{"resultType":"complete","content":[{"type":"text","text":`+quote("state: "+p.RequestState)+`}]}`)
	}
	return true
}

// page answers a list with two pages.
func (f *fake) page(r fakeRequest) {
	var p struct{ Cursor string }
	_ = json.Unmarshal(r.Params, &p) // on an error it is the first page
	switch p.Cursor {
	case "":
		f.result(r, `{"resourceTemplates":[{"uriTemplate":"file:///{a}","name":"one"}],"nextCursor":"page two"}`)
	case "page two":
		f.result(r, `{"resourceTemplates":[{"uriTemplate":"file:///{b}","name":"two"}]}`)
	default:
		f.fail(r, -32602, "no such page", "null")
	}
}
