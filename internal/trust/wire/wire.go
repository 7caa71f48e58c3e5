// Package wire is the only place where bytes from a client or a server become a JSON-RPC message.
//
// Doorward must read a message exactly as its receiver does; otherwise it decides about
// another message than the one that is acted on. Parse therefore reads the bytes once
// and refuses whatever two readers could read differently: duplicate keys, keys that are
// equal under case folding, invalid UTF-8, lone surrogates, trailing data, ids
// that a decoder would change.
//
// Invariant: a message that Parse accepts is valid JSON with one meaning, and its Params,
// Result and Error.Data are the received bytes.
//
// Text expects bytes that Parse or ValidateValue accepted. For other bytes its result is
// meaningless, but it never panics. Package rawjson reads the members of accepted bytes.
package wire
