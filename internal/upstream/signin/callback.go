package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

const callbackPath = "/callback"

// callback serves the redirect of the browser, once.
type callback struct {
	server *http.Server
	hosts  [2]string
	state  string
	issuer string
	iss    bool // the authorization server has declared that it sends iss
	done   chan outcome

	mu   sync.Mutex
	open []net.Conn // the oldest first
}

// mostOpen bounds the connections that are kept. Every program on this machine can open some; without a bound they use
// up the descriptors and the browser gets no connection.
const mostOpen = 32

// outcome is a code, or the error why there is none.
type outcome struct {
	code string
	err  error
}

func serveCallback(l net.Listener, state, issuer string, iss bool) *callback {
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	c := &callback{state: state, issuer: issuer, iss: iss, done: make(chan outcome, 1),
		hosts: [2]string{"127.0.0.1:" + port, "localhost:" + port}}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10, ConnState: c.changed}
	go func() { _ = c.server.Serve(l) }() // ends with close
	return c
}

// changed keeps the newest connections: the browser sends its request at once.
func (c *callback) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open = append(c.open, conn)
	case http.StateClosed:
		c.open = slices.DeleteFunc(c.open, func(o net.Conn) bool { return o == conn })
	}
	if len(c.open) > mostOpen {
		c.open[0].Close() // the server reports its end later
		c.open = slices.Delete(c.open, 0, 1)
	}
}

// ServeHTTP takes the authorization response. Every program on this machine can send one, and every web page
// can make a browser send one: without the state it changes nothing, and the wait goes on.
func (c *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	q, err := url.ParseQuery(r.URL.RawQuery)
	switch {
	case r.Method != http.MethodGet || r.URL.Path != callbackPath || r.Host != c.hosts[0] && r.Host != c.hosts[1]:
		w.WriteHeader(http.StatusNotFound)
	case err != nil || len(q["state"]) != 1 || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(c.state)) != 1:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, "This sign-in is not the one that Doorward waits for.")
	default:
		c.settle(w, c.judge(q))
	}
}

// settle ends the wait with the first outcome: a state is valid for one answer.
func (c *callback) settle(w http.ResponseWriter, o outcome) {
	text := "The browser's part of the sign-in is complete. Return to where you started it."
	if o.err != nil {
		w.WriteHeader(http.StatusBadRequest)
		text = "This sign-in was refused. Return to where you started it."
	}
	select {
	case c.done <- o:
	default:
		text = "This sign-in has ended."
	}
	fmt.Fprintln(w, text)
}

var (
	errMixUp  = errors.New("the answer came from another authorization server: the sign-in is abandoned")
	errAnswer = errors.New("the authorization server's answer is not valid")
)

// judge reads a response with the right state. It checks the issuer first: of a response from another issuer
// neither the code is used nor the error shown (RFC 9207, section 2.4).
func (c *callback) judge(q url.Values) outcome {
	for _, name := range []string{"iss", "code", "error"} {
		if len(q[name]) > 1 {
			return outcome{err: errAnswer}
		}
	}
	given, code, refusal := q.Get("iss"), q.Get("code"), q.Get("error")
	switch {
	case q.Has("iss") && given != c.issuer, !q.Has("iss") && c.iss:
		return outcome{err: errMixUp}
	case isCode(refusal):
		return outcome{err: fmt.Errorf("the authorization server refused: %s", refusal)}
	case q.Has("error"), code == "", len(code) > maxToken:
		return outcome{err: errAnswer}
	}
	return outcome{code: code}
}

func (c *callback) wait(ctx context.Context) (code string, err error) {
	select {
	case o := <-c.done:
		return o.code, o.err
	case <-ctx.Done():
		return "", fmt.Errorf("the browser did not return: %w", ctx.Err())
	}
}

// close lets an answer that is being written complete, and frees the port.
func (c *callback) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c.server.Shutdown(ctx) != nil {
		c.server.Close()
	}
}
