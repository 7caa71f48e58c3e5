// Package protocol holds the words of MCP over HTTP that both sides of a
// connection use: revisions of the specification, and the names and the encoding
// of headers. Nothing here decides: a header is a claim of its sender.
//
// Invariant: DecodeHeader gives back exactly what EncodeHeader was given, and
// refuses a value that two readers could take for two texts.
package protocol
