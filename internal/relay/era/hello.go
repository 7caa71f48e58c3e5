// Package era translates between the two eras of the protocol: the greetings of servers,
// results and errors, and the levels of log messages.
//
// Invariant: params and results keep their bytes, apart from members that one of the
// eras does not have.
package era

import (
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Initialized returns a server's InitializeResult in the client's version. For a modern
// server it is made from the DiscoverResult, without tasks, which each era has in another
// form.
func Initialized(of front.Era, hello []byte, version string) []byte {
	v := rawjson.AppendQuote(nil, version)
	if of == front.Legacy {
		return rawjson.Set(hello, rawjson.Edit{Key: "protocolVersion", Value: v})
	}
	info := rawjson.GetPath(hello, "_meta", wire.MetaServerInfo)
	if info == nil {
		info = []byte(`{"name":"unknown","version":"unknown"}`)
	}
	edits := []rawjson.Edit{{Key: "protocolVersion", Value: v}, {Key: "capabilities", Value: Capabilities(front.Legacy, of, hello)}, {Key: "serverInfo", Value: info}}
	if text := rawjson.Get(hello, "instructions"); text != nil {
		edits = append(edits, rawjson.Edit{Key: "instructions", Value: text})
	}
	return rawjson.Set(nil, edits...)
}

func orEmpty(obj []byte) []byte {
	if obj == nil {
		return rawjson.Empty
	}
	return obj
}

// Served lists the versions that every route serves: the modern one, and the legacy ones by
// handshake.
var Served = []byte(`["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]`)

// Discovered returns a server's greeting as the answer to server/discover.
func Discovered(of front.Era, hello []byte) []byte {
	edits := []rawjson.Edit{{Key: "supportedVersions", Value: Served}, {Key: "cacheScope", Value: []byte(`"private"`)}}
	if of == front.Modern {
		if rawjson.Get(hello, "resultType") == nil {
			edits = append(edits, rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)})
		}
		if rawjson.Get(hello, "ttlMs") == nil {
			edits = append(edits, rawjson.Edit{Key: "ttlMs", Value: []byte("0")})
		}
		return rawjson.Set(hello, edits...)
	}
	edits = append(edits,
		rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)},
		rawjson.Edit{Key: "ttlMs", Value: []byte("0")},
		rawjson.Edit{Key: "capabilities", Value: Capabilities(front.Modern, of, hello)})
	if text := rawjson.Get(hello, "instructions"); text != nil {
		edits = append(edits, rawjson.Edit{Key: "instructions", Value: text})
	}
	out := rawjson.Set(nil, edits...)
	if info := rawjson.Get(hello, "serverInfo"); info != nil {
		out = rawjson.SetIn(out, "_meta", rawjson.Edit{Key: wire.MetaServerInfo, Value: info})
	}
	return out
}

// Capabilities returns the capabilities of a server that a client of the era can use. Between
// the eras tasks are left out, because each era has its own protocol for them.
func Capabilities(client, of front.Era, hello []byte) []byte {
	caps := orEmpty(rawjson.Get(hello, "capabilities"))
	switch extensions := rawjson.Get(caps, "extensions"); {
	case client == of:
		return caps
	case client == front.Modern:
		return rawjson.Set(caps, rawjson.Edit{Key: "tasks"})
	case extensions != nil:
		return rawjson.Set(caps, rawjson.Edit{Key: "extensions", Value: WithoutTasks(extensions)})
	}
	return caps
}

// DefaultInit returns initialize params without capabilities: no client is there to serve
// one.
func DefaultInit(info []byte) []byte { return InitWith(info, rawjson.Empty) }

// InitWith returns initialize params that declare caps and the clientInfo info.
func InitWith(info, caps []byte) []byte {
	p := append([]byte(`{"protocolVersion":"`+protocol.LatestLegacy+`","capabilities":`), caps...)
	return append(append(append(p, `,"clientInfo":`...), info...), '}')
}

// TasksExtension is the tasks extension of the modern era (SEP-2663).
const TasksExtension = "io.modelcontextprotocol/tasks"

// WithoutTasks returns the extensions of a client or server without that of tasks, which has
// no counterpart in the legacy era.
func WithoutTasks(extensions []byte) []byte {
	if len(extensions) == 0 || extensions[0] != '{' {
		return nil
	}
	return rawjson.Set(extensions, rawjson.Edit{Key: TasksExtension})
}

// OwnMeta returns the _meta of requests that Doorward itself makes to a modern server; info
// is its clientInfo.
func OwnMeta(info []byte) []byte {
	m := []byte(`{"` + wire.MetaVersion + `":"` + protocol.LatestModern + `","` + wire.MetaCapabilities + `":{},"` + wire.MetaClientInfo + `":`)
	return append(append(m, info...), '}')
}

// OwnParams returns the params of such a request; meta is nil for a legacy server.
func OwnParams(meta []byte, edits ...rawjson.Edit) []byte {
	if meta != nil {
		edits = append([]rawjson.Edit{{Key: "_meta", Value: meta}}, edits...)
	}
	return rawjson.Set(nil, edits...)
}
