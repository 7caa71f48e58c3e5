package front

import "sync/atomic"

// Init is the initialize of a session. It is set while other messages of the session may arrive,
// because over HTTP+SSE a session exists before its initialize.
type Init struct {
	params   atomic.Pointer[[]byte]
	begun    atomic.Bool // initialize was received
	answered atomic.Bool // and succeeded
}

// Params returns the client's initialize params, raw, which must not be changed; nil before
// initialize, before which the Handler gets pings only.
func (i *Init) Params() []byte {
	if p := i.params.Load(); p != nil {
		return *p
	}
	return nil
}

// set stores a copy of the params.
func (i *Init) set(params []byte) {
	own := append([]byte(nil), params...)
	i.params.Store(&own)
}

// admits reports whether a message may be served now: before initialize has succeeded only that
// and pings, and notifications that only the front serves (2024-11-05 Lifecycle,
// "Initialization").
func (i *Init) admits(method string) bool {
	switch method {
	case "initialize", "ping", "notifications/initialized", "notifications/cancelled":
		return true
	}
	return i.answered.Load()
}
