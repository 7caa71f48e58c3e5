// Package wire is the only place where bytes from a client or a server become a
// JSON-RPC message, and where messages become bytes again.
//
// A gateway is only as strong as the agreement between its reading of a message
// and every other reader's. Parse therefore walks the bytes once and refuses
// whatever two readers could read differently: duplicate keys, keys that are
// equal under case folding, invalid UTF-8, lone surrogates, trailing data, ids
// that a decoder would change.
//
// Invariant: what Parse accepts is valid JSON with one meaning, and Params,
// Result and Error.Data are the very bytes that came. They are changed by Set and
// SetIn only, which leave every other byte in place.
//
// Get, Members, Text and Set expect bytes that Parse or ValidateValue accepted. For other bytes their result is meaningless, but they never panic.
package wire
