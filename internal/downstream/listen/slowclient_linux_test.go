package listen

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// A client that stops in a request loses its connection at the deadline of http.Server or of the
// handler, and one that leaves while it is served ends the context of its request: on the first
// request of a connection and on later ones, over each kind of connection.
func TestSlowAndLeavingClientsAreNoticed(t *testing.T) {
	t.Parallel()
	const head = "POST /body HTTP/1.1\r\nHost: x\r\n"
	whole := head + "Content-Length: 2\r\n\r\nok"
	for _, kind := range []string{"tcp", "unix", "tls"} {
		for _, before := range []int{0, 1, 3} {
			for name, end := range map[string]string{"a head": head, "a body": head + "Content-Length: 9\r\n\r\nx", "leaves": "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok"} {
				t.Run(name+" "+kind, func(t *testing.T) {
					t.Parallel()
					conn, left := slowServer(t, kind)
					in := bufio.NewReader(conn)
					for range before {
						io.WriteString(conn, whole)
						resp, err := http.ReadResponse(in, nil)
						if err != nil {
							t.Fatal(err)
						}
						io.Copy(io.Discard, resp.Body)
					}
					io.WriteString(conn, end)
					if name == "leaves" {
						<-left // it is served
						conn.Close()
						<-left
						return
					}
					conn.SetReadDeadline(time.Now().Add(30 * time.Second))
					if _, err := io.Copy(io.Discard, in); err != nil {
						t.Errorf("the connection is open: %v", err)
					}
				})
			}
		}
	}
}

// slowServer serves a listener whose clients have 3 s for a head and for a body, and returns a
// connection to it. A request for /wait sends on left at its begin, and when its context has ended.
func slowServer(t *testing.T, kind string) (conn net.Conn, left chan bool) {
	s := Spec{Network: "tcp", Addr: "127.0.0.1:0"}
	switch kind {
	case "unix":
		s = Spec{Network: "unix", Addr: filepath.Join(t.TempDir(), "s")}
	case "tls":
		s.CertFile, s.KeyFile = filepath.Join(t.TempDir(), "c"), filepath.Join(t.TempDir(), "k")
		writePair(t, s.CertFile, s.KeyFile)
	}
	l := mustOpen(t, s, Credential{}, Options{})
	const limit = 3 * time.Second
	left = make(chan bool, 2)
	srv := &http.Server{ReadHeaderTimeout: limit, IdleTimeout: time.Minute, ConnContext: l.ConnContext, ConnState: l.ConnState,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/wait" {
				left <- true
				<-r.Context().Done()
				left <- true
			}
		})}
	go srv.Serve(l.Net())
	t.Cleanup(func() { srv.Close() })
	conn, err := net.Dial(s.Network, l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if l.TLS {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the test knows the other end
	}
	return conn, left
}
