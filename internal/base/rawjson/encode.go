package rawjson

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/doorward/doorward/internal/trust/wire"
)

// The Append functions write a message without line breaks of their own. Params, results
// and error data are copied unchanged and may contain line breaks, which a transport that
// frames by lines must remove.

// AppendRequest appends a request. Nil params are left out.
func AppendRequest(dst []byte, id wire.ID, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, ',')
	return appendCall(dst, method, params)
}

// AppendNotification appends a notification. Nil params are left out.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	return appendCall(append(dst, `{"jsonrpc":"2.0",`...), method, params)
}

func appendCall(dst []byte, method string, params []byte) []byte {
	dst = AppendQuote(append(dst, `"method":`...), method)
	if len(params) > 0 {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, '}')
}

// AppendResult appends a response with a result; an empty result is written as {}.
func AppendResult(dst []byte, id wire.ID, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	if len(result) == 0 {
		result = []byte("{}")
	}
	dst = append(dst, result...)
	return append(dst, '}')
}

// AppendError appends a response with an error, without an id member when id
// is nil. The error object is e.Raw if set, and is otherwise made of the other fields.
func AppendError(dst []byte, id wire.ID, e *wire.Error) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(dst, `"id":`...)
		dst = append(dst, id...)
		dst = append(dst, ',')
	}
	dst = append(dst, `"error":`...)
	if e.Raw != nil {
		dst = append(dst, e.Raw...)
		return append(dst, '}')
	}
	dst = strconv.AppendInt(append(dst, `{"code":`...), e.Code, 10)
	dst = AppendQuote(append(dst, `,"message":`...), e.Message)
	if len(e.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	}
	return append(dst, '}', '}')
}

// AppendQuote appends s as the shortest valid JSON string. Bytes that are not
// UTF-8 become U+FFFD.
func AppendQuote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // an error means only that bytes were replaced
	return dst
}
