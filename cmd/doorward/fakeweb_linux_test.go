package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdWeb starts an MCP server over HTTP and sets VAR to its address. What it
// does depends on the path:
//
//	/good        Streamable HTTP of the older era, with a session; the tool
//	             headers tells what headers came with the call
//	/failing     initialize works, every call is 500 with a trace
//	/refusing    401 with a challenge
//	/moved       307 to /good
//	/html        200 with a page
//	/hanging     initialize works, every call hangs
//	/cut         initialize works, the answer to a call ends in its middle
//	/lured       HTTP+SSE whose endpoint event names another host
func cmdWeb(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 1, "web VAR")
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serveWeb(w, r, over) }))
	ts.Setenv(args[0], s.URL)
	ts.Defer(func() {
		close(over)
		s.CloseClientConnections()
		s.Close()
	})
}

func serveWeb(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
	h := w.Header()
	h.Set("Set-Cookie", "upstream=secret")
	h.Set("X-Upstream", "/srv/private")
	switch r.URL.Path {
	case "/refusing":
		h.Set("WWW-Authenticate", `Bearer realm="/srv/private"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	case "/moved":
		http.Redirect(w, r, "/good", http.StatusTemporaryRedirect)
		return
	case "/html":
		fmt.Fprint(w, "<h1>/srv/private</h1>")
		return
	case "/lured":
		h.Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: endpoint\ndata: http://lure.example/messages?session_id=x\n\n")
		_ = http.NewResponseController(w).Flush()
		<-over
		return
	}
	var q fakeRequest
	body, err := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || err != nil || json.Unmarshal(body, &q) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	answerWeb(w, r, q, over)
}

func answerWeb(w http.ResponseWriter, r *http.Request, q fakeRequest, over <-chan struct{}) {
	w.Header().Set("Content-Type", "application/json")
	result := func(text string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, text) }
	switch {
	case q.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case q.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", "upstream-private-session")
		result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"}}`)
	case q.Method == "server/discover":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, q.ID)
	case r.URL.Path == "/failing":
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `Traceback: /srv/private/app.py`)
	case r.URL.Path == "/hanging":
		select {
		case <-over:
		case <-r.Context().Done():
		}
	case r.URL.Path == "/cut":
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":`)
	case q.Method == "tools/list":
		result(`{"tools":[{"name":"headers","description":"what came","inputSchema":{"type":"object"}}]}`)
	default:
		result(`{"content":[{"type":"text","text":` + quote(headerText(r)) + `}]}`)
	}
}

// headerText is a request's headers, one a line.
func headerText(r *http.Request) string {
	var all []string
	for name, values := range r.Header {
		all = append(all, name+": "+strings.Join(values, ", "))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
