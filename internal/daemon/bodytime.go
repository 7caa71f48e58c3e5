package daemon

import (
	"net/http"
	"time"
)

// bodyTime is how long a client may take to send a body, whichever path it is for.
const bodyTime = 30 * time.Second

// timely passes requests to next and closes the connection of one whose body has not arrived
// within limit. It covers refused requests too, because net/http reads the rest of a body
// before it answers. net/http clears the deadline at the end of the body and when a connection
// is taken over. The body itself is not wrapped: by its type net/http knows a client that waits
// for "100 Continue", and one that is still sending when its connection closes.
func timely(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit)); err != nil {
				http.Error(w, "the connection has no deadlines", http.StatusInternalServerError)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
