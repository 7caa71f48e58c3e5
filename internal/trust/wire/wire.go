// Package wire is the one place where bytes from a client or a server become
// a JSON-RPC message, and where messages become bytes again.
//
// It exists because a gateway is only as strong as the agreement between its
// reading of a message and everybody else's. Parse therefore walks the bytes
// once and refuses whatever two readers could read differently: duplicate
// keys, keys that meet under case folding, invalid UTF-8, lone surrogates,
// trailing data, ids that a decoder would change.
//
// The invariant: what Parse accepts is valid JSON with one meaning, and
// Params, Result and Error.Data are the very bytes that came. Changing them
// goes through Set and SetIn, which leave every other byte where it was.
//
// Reading validated bytes again (Get, Members, Text, Set, Canonical) expects
// what Parse or ValidateValue accepted; for anything else these functions
// return without sense, but they do not panic.
package wire
