// Package rawjson reads and changes single members and strings of raw JSON, and makes
// whole JSON-RPC messages.
//
// Invariant: in bytes that wire accepted, every byte outside the changed members
// and strings stays, and the result is JSON that wire accepts, unless it is nested too
// deeply. For other bytes the result is meaningless, but there is no panic, and nothing
// outside of the bytes is read.
package rawjson
