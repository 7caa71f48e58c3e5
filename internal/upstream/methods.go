package upstream

// Methods that a connection itself handles.
const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodDiscover    = "server/discover"
	methodListen      = "subscriptions/listen"
	methodPing        = "ping"
	methodProgress    = "notifications/progress"
	methodCancelled   = "notifications/cancelled"
	methodLog         = "notifications/message"
)

// ofSession reports whether a notification concerns the connection as a whole, so that it is
// never assigned to a call that happens to be in flight.
func ofSession(method string) bool {
	switch method {
	case "notifications/tools/list_changed",
		"notifications/prompts/list_changed",
		"notifications/resources/list_changed",
		"notifications/resources/updated",
		"notifications/elicitation/complete":
		return true
	}
	return false
}

// JSON-RPC codes that only a server of the modern era sends ("Error codes").
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
)

func isModernCode(code int64) bool {
	return code == codeHeaderMismatch || code == codeMissingCapability || code == codeUnsupportedVersion
}
