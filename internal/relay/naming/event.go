package naming

import (
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/upstream"
)

// URI returns the name that a client uses for a server's URI: on the aggregate, or on the
// server's own route.
func URI(aggregate bool, server, uri string) string {
	if !aggregate {
		return uri
	}
	return resolve.JoinURI(server, uri)
}

// Event replaces the names in a notification by the aggregate's.
func Event(server string, e upstream.Event) []byte {
	params := Server(server).meta(e.Params)
	switch e.Method {
	case "notifications/resources/updated":
		if uri, ok := rawjson.GetString(params, "uri"); ok {
			return rawjson.Set(params, rawjson.Edit{Key: "uri", Value: rawjson.AppendQuote(nil, resolve.JoinURI(server, uri))})
		}
	case "notifications/message":
		if logger, ok := rawjson.GetString(params, "logger"); ok {
			return rawjson.Set(params, rawjson.Edit{Key: "logger", Value: rawjson.AppendQuote(nil, resolve.JoinName(server, logger))})
		}
	case protocol.TaskStatus, protocol.TaskChanged:
		return Server(server).task(params)
	}
	return params
}
