package doortest

import "net/http"

// own carries the requests of every Client.
var own = http.DefaultTransport.(*http.Transport).Clone()

// Client returns a client for the requests of a test. Tests do not use http.DefaultTransport:
// httptest.Server.Close closes its idle connections. net/http counts the connection of an answer
// without a body as idle before it returns the answer, so the request of another test fails.
func Client() *http.Client { return &http.Client{Transport: own} }
