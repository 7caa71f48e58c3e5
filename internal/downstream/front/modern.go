package front

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// removed is the set of legacy methods that 2026-07-28 does not have: in a modern call they
// are unknown methods.
var removed = map[string]bool{
	"initialize": true, "ping": true, "logging/setLevel": true,
	"resources/subscribe": true, "resources/unsubscribe": true,
}

var (
	errMismatch     = &wire.Error{Code: CodeHeaderMismatch, Message: "A header is missing or differs from the body"}
	errMeta         = &wire.Error{Code: CodeInvalidParams, Message: "Missing or malformed _meta: protocolVersion and clientCapabilities are required"}
	errNoSuchMethod = &wire.Error{Code: CodeNoMethod, Message: "Method not found"}
)

// modern serves one stateless POST of 2026-07-28. version is the value in _meta.
func (d *Door) modern(in *inbound, m *wire.Message, version string) {
	d.seen(in.who, nil)
	switch m.Kind {
	case wire.Response:
		fail(in.w, http.StatusBadRequest, nil, errResponse)
		return
	case wire.Notification:
		// No further headers are defined for notifications, and none affects a request: a
		// request is cancelled by closing its stream.
		if e := checkNotified(in.header, version); e != nil {
			accepted(in, e)
			return
		}
		accepted(in, d.o.Handler.Notification(in.r.Context(), d.modernExchange(in, m, version, nil)))
		return
	}
	if e := checkModern(in, m, version); e != nil {
		fail(in.w, statusOf(Modern, e), m.ID, e)
		return
	}
	if m.Method == "subscriptions/listen" && !in.sse { // its answer is a stream
		plain(in.w, http.StatusNotAcceptable)
		return
	}
	ctx, cancel := context.WithCancel(in.r.Context())
	defer cancel()
	st := &stream{w: in.w, json: in.json, sse: in.sse, prefer: in.stream, life: d.hearing(in, nil)}
	x := d.modernExchange(in, m, version, st)
	defer d.during(x, cancel)()
	d.serve(ctx, x)
}

func (d *Door) modernExchange(in *inbound, m *wire.Message, version string, st *stream) *Exchange {
	x := &Exchange{Who: in.who, Server: in.server, Era: Modern, Version: version,
		ID: m.ID, Method: m.Method, Params: m.Params, Size: in.size, stream: st, request: in.r, Namespace: namespace(in.r.Header), Delivery: delivery(in.r), hungUp: d.o.hungUp(in.r)}
	if !overStdio(in.r.Header) {
		x.Header = in.r.Header
	}
	return x
}

// overStdio reports that a message came through `doorward connect`, whose client speaks stdio
// and therefore sends no Mcp-Param headers. The header is not trusted: if Mcp-Param headers
// are present, they are checked.
func overStdio(h http.Header) bool {
	if len(h[protocol.HeaderStdio]) == 0 {
		return false
	}
	for k := range h {
		if strings.HasPrefix(k, "Mcp-Param-") {
			return false
		}
	}
	return true
}

// checkModern compares headers with the members of the body that they repeat. Only the body
// is acted on (Streamable HTTP, "Server Validation").
func checkModern(in *inbound, m *wire.Message, version string) *wire.Error {
	meta := rawjson.Get(m.Params, "_meta")
	caps := rawjson.Get(meta, wire.MetaCapabilities)
	switch {
	case version == "" || firstByte(caps) != '{':
		return errMeta
	case in.header != version:
		return errMismatch
	case !protocol.IsModernVersion(version):
		return unsupported(version)
	case in.r.Header.Get("Mcp-Method") != m.Method:
		return errMismatch
	case !nameMatches(in.r.Header, m):
		return errMismatch
	case removed[m.Method]:
		return errNoSuchMethod
	}
	return nil
}

// checkNotified checks the version of a notification, which may be in the header, in _meta or
// in both.
func checkNotified(header, meta string) *wire.Error {
	v := cmp.Or(meta, header)
	switch {
	case header != "" && header != v:
		return errMismatch
	case !protocol.IsModernVersion(v):
		return unsupported(v)
	}
	return nil
}

// nameMatches compares Mcp-Name with the member of params that it repeats.
func nameMatches(h http.Header, m *wire.Message) bool {
	member := protocol.NameMember(m.Method)
	if member == "" {
		return true
	}
	name, ok := rawjson.GetString(m.Params, member)
	if !ok {
		return true // the Handler refuses such params
	}
	v := h["Mcp-Name"]
	if len(v) != 1 {
		return false
	}
	got, err := protocol.DecodeHeader(v[0])
	return err == nil && got == name
}
