package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdTool calls a tool and prints what came of it: `error CODE MESSAGE` for a
// JSON-RPC error, the HTTP status for anything that is no JSON-RPC, else the
// structured content on one line and the text below it.
//
//	tool PATH NAME ARGUMENTS [http FLAG…]
//
// With -session it is a call of a legacy client, else a one-shot request of
// 2026-07-28. In ARGUMENTS $NAME is replaced. Of inbox and read of the server
// agent it asks for JSON where ARGUMENTS name no format.
func cmdTool(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) >= 3, "tool PATH NAME ARGUMENTS [http FLAG…]")
	arguments := args[2]
	if arguments == "" {
		arguments = "{}"
	}
	if !strings.Contains(args[0]+args[1], "instructions") {
		arguments = structured(args[1], arguments)
	}
	more, meta := args[3:], ""
	if !contains(more, "-session") {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		more = append([]string{"-modern"}, more...)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, args[1], arguments, meta)
	var answer bytes.Buffer
	send(ts, &answer, append([]string{"POST", args[0], "-d", body}, more...))
	fmt.Fprint(ts.Stdout(), toolText(answer.String()))
}

// structured asks for JSON, as programs do, where a tool gives text by default.
func structured(tool, arguments string) string {
	name := tool[strings.LastIndexByte(tool, '_')+1:]
	if name != "inbox" && name != "read" || strings.Contains(arguments, `"format"`) || !strings.HasPrefix(arguments, "{") {
		return arguments
	}
	if strings.TrimSpace(arguments[1:]) == "}" {
		return `{"format":"json"}`
	}
	return `{"format":"json",` + arguments[1:]
}

func contains(list []string, word string) bool {
	for _, w := range list {
		if w == word {
			return true
		}
	}
	return false
}

// toolText is the answer of one call for a script.
func toolText(answer string) string {
	head, body, _ := strings.Cut(answer, "\n\n")
	var m struct {
		Error *struct {
			Code    int
			Message string
		}
		Result *struct {
			Content           []struct{ Text string }
			StructuredContent json.RawMessage
		}
	}
	for _, line := range strings.Split(body, "\n") { // JSON, or the last event of a stream
		line = strings.TrimPrefix(line, "data: ")
		_ = json.Unmarshal([]byte(line), &m)
	}
	switch {
	case m.Error != nil:
		return fmt.Sprintf("error %d %s\n", m.Error.Code, m.Error.Message)
	case m.Result == nil:
		return head + "\n" + body
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", m.Result.StructuredContent)
	for _, c := range m.Result.Content {
		fmt.Fprintln(&out, c.Text)
	}
	return out.String()
}

// cmdField sets a variable to a member of the JSON on the first line that the
// last command printed: field VAR member.member
func cmdField(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2, "field VAR PATH")
	text, _, _ := strings.Cut(ts.ReadFile("stdout"), "\n")
	var v any
	ts.Check(json.Unmarshal([]byte(text), &v))
	for _, name := range strings.Split(args[1], ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			var i int
			fmt.Sscan(name, &i)
			if i >= len(at) {
				ts.Fatalf("no element %s in %s", name, text)
			}
			v = at[i]
		}
	}
	if v == nil {
		ts.Fatalf("no %s in %s", args[1], text)
	}
	ts.Setenv(args[0], fmt.Sprint(v))
}
