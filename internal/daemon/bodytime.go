package daemon

import (
	"io"
	"net/http"
	"time"
)

// bodyTime is how long a client may take to send a body, whichever path it is for.
const bodyTime = 30 * time.Second

// timely passes requests to next and closes the connection of one whose body has not arrived
// within limit. It covers refused requests too, because net/http reads the rest of a body
// before it answers.
func timely(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			rc := http.NewResponseController(w)
			if err := rc.SetReadDeadline(time.Now().Add(limit)); err != nil {
				http.Error(w, "the connection has no deadlines", http.StatusInternalServerError)
				return
			}
			r.Body = &timelyBody{r.Body, rc}
		}
		next.ServeHTTP(w, r)
	})
}

// timelyBody is a body with a read deadline. Its end clears the deadline, which would otherwise
// cancel the request.
type timelyBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *timelyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		if e := b.rc.SetReadDeadline(time.Time{}); e != nil {
			return n, e
		}
	}
	return n, err
}
