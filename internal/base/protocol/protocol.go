// Package protocol holds the words of MCP over HTTP that both sides of a
// connection use: revisions of the specification, and the names and the encoding
// of headers. A header is a claim of its sender, and nothing here decides about it.
//
// Invariant: DecodeHeader returns exactly the text given to EncodeHeader, and
// refuses a value that two readers could decode differently.
package protocol
