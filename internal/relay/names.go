package relay

import (
	"strings"

	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// On the aggregate a tool or prompt is `server__name`, and a resource
// `doorward://server/` followed by the server's own URI, which stays readable
// and can be undone without looking anything up. Server names hold no `__`
// and no slash, so both forms split in one way only.
const (
	joint  = "__"
	scheme = "doorward://"
)

func joinName(server, name string) string { return server + joint + name }

func splitName(full string) (server, name string, ok bool) {
	return strings.Cut(full, joint)
}

func joinURI(server, uri string) string { return scheme + server + "/" + uri }

func splitURI(full string) (server, uri string, ok bool) {
	rest, ok := strings.CutPrefix(full, scheme)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// plainURI is a client's URI in the server's own words; false when it names
// another server.
func plainURI(aggregate bool, server, uri string) (string, bool) {
	if !aggregate {
		return uri, true
	}
	s, plain, ok := splitURI(uri)
	return plain, ok && s == server
}

func clientURI(aggregate bool, server, uri string) string {
	if !aggregate {
		return uri
	}
	return joinURI(server, uri)
}

// prefixEvent rewrites what a notification names into the aggregate's words.
func prefixEvent(server string, e upstream.Event) []byte {
	switch e.Method {
	case "notifications/resources/updated":
		if uri, ok := wire.GetString(e.Params, "uri"); ok {
			return wire.Set(e.Params, wire.Edit{Key: "uri", Value: wire.AppendQuote(nil, joinURI(server, uri))})
		}
	case "notifications/message":
		if logger, ok := wire.GetString(e.Params, "logger"); ok {
			return wire.Set(e.Params, wire.Edit{Key: "logger", Value: wire.AppendQuote(nil, joinName(server, logger))})
		}
	}
	return e.Params
}
