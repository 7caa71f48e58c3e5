// Package rawjson writes what trust/wire reads: it changes single members and
// strings of raw JSON, and makes whole JSON-RPC messages.
//
// Invariant: of bytes that wire accepted, every byte outside the changed members
// and strings stays, and the result is JSON that wire accepts, apart from its
// depth. Other bytes give a meaningless result and never a panic.
package rawjson
