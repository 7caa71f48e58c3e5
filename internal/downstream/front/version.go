package front

import (
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Era is the family of protocol versions that a client speaks.
type Era uint8

const (
	Legacy Era = iota + 1 // an initialize handshake and a session
	Modern                // version and capabilities in every request
)

// negotiated returns the version of a session for its initialize params: the requested one if
// Doorward supports it, else the newest version with a handshake (2025-11-25 Lifecycle,
// "Version Negotiation").
func negotiated(init []byte) string {
	if v, _ := rawjson.GetString(init, "protocolVersion"); protocol.IsLegacyVersion(v) {
		return v
	}
	return protocol.LatestLegacy
}

// version is the negotiated version of a session. It is set while other messages of the
// session may arrive, because over HTTP+SSE a session exists before its initialize.
type version struct{ agreed atomic.Pointer[string] }

func (v *version) negotiate(init []byte) {
	name := negotiated(init)
	v.agreed.Store(&name)
}

// name returns the negotiated version; before initialize, the version of HTTP+SSE.
func (v *version) name() string {
	if name := v.agreed.Load(); name != nil {
		return *name
	}
	return protocol.V20241105
}

// differs returns the error for a request whose header MCP-Protocol-Version does not fit the
// session; nil: it does. Before initialize any known version fits.
func (v *version) differs(header string) *wire.Error {
	agreed := v.agreed.Load()
	switch {
	case header == "", agreed == nil && protocol.IsLegacyVersion(header):
		return nil
	case agreed == nil:
		return errBadVersion
	case sameVersion(header, *agreed):
		return nil
	}
	data := append(rawjson.AppendQuote([]byte(`{"negotiated":`), *agreed), '}')
	return &wire.Error{Code: CodeInvalidRequest, Message: "MCP-Protocol-Version is not the version that the session negotiated", Data: data}
}

// sameVersion reports that a header is absent or names the negotiated version. In a session
// of 2025-11-25 the header 2025-03-26 counts as absent: a server without sessions assumes
// that version for an absent header, and the official conformance suite 0.1.16 sends it
// (decision 0039). The session remains one of 2025-11-25.
func sameVersion(header, negotiated string) bool {
	return header == "" || header == negotiated ||
		header == protocol.V20250326 && negotiated == protocol.V20251125
}

// unsupported returns -32022 with the versions that this route supports.
func unsupported(requested string) *wire.Error {
	data := []byte(`{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"requested":`)
	data = append(rawjson.AppendQuote(data, requested), '}')
	return &wire.Error{Code: CodeVersion, Message: "Unsupported protocol version", Data: data}
}
