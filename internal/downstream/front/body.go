package front

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// bodyTime is how long a client may take to send an announced body.
const bodyTime = 30 * time.Second

var errTooLarge = errors.New("body too large")

// buffer is a reusable message buffer. Parsed messages alias it, so it goes back
// to the pool only when its exchange has ended.
type buffer struct{ b []byte }

// keepBuffer is the largest buffer that is kept for reuse.
const keepBuffer = 64 << 10

type bufferPool struct{ pool sync.Pool }

// bodies is shared by all faces. It holds no data of a caller, because every buffer is cut to
// length zero before it is used again.
var bodies bufferPool

func (p *bufferPool) get(size int) *buffer {
	b, _ := p.pool.Get().(*buffer)
	if b == nil {
		b = &buffer{}
	}
	if cap(b.b) < size {
		b.b = make([]byte, 0, max(size, 1024))
	}
	return b
}

func (p *bufferPool) put(b *buffer) {
	if cap(b.b) > keepBuffer {
		return
	}
	b.b = b.b[:0]
	p.pool.Put(b)
}

// readBody reads a request's body. The error is errTooLarge if the body is larger than the limit,
// whatever Content-Length said, and errTooMany if its principal sends too many large ones.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, enter func(time.Duration) (leave func(), err error)) (*buffer, error) {
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	size := 4096
	if r.ContentLength >= 0 {
		size = int(min(r.ContentLength, keepBuffer)) + 1
	}
	buf := bodies.get(size)
	err := fill(buf, r.Body, min(limit, keepBuffer))
	if errors.Is(err, errTooLarge) && limit > keepBuffer {
		err = fillLarge(buf, r.Body, limit, rc, enter)
	}
	if err != nil {
		bodies.put(buf)
		return nil, err
	}
	return buf, rc.SetReadDeadline(time.Time{})
}

// fillLarge reads the rest of a body that exceeds a pooled buffer, when there is a place for it. The
// time for the body begins again then.
func fillLarge(buf *buffer, r io.Reader, limit int64, rc *http.ResponseController, enter func(time.Duration) (leave func(), err error)) error {
	leave, err := enter(bodyTime)
	if err != nil {
		return err
	}
	defer leave()
	if err := rc.SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
		return err
	}
	return fill(buf, r, limit)
}

// body reads the request's body, or answers the request with an error.
func (d *Door) body(w http.ResponseWriter, r *http.Request, who *principal.Principal) (*buffer, bool) {
	buf, err := readBody(w, r, d.o.BodyBytes, func(limit time.Duration) (leave func(), err error) {
		return d.large.enter(who, limit, d.o.hungUp(r))
	})
	switch {
	case err == nil:
		return buf, true
	case errors.Is(err, errTooLarge):
		w.Header().Set("Connection", "close")
		plain(w, http.StatusRequestEntityTooLarge)
		drain(w, r)
	case errors.Is(err, errTooMany):
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "1")
		plain(w, http.StatusServiceUnavailable)
	default:
		w.Header().Set("Connection", "close")
		plain(w, http.StatusBadRequest)
	}
	return nil, false
}

// drainBytes is how much of a refused body is read.
const drainBytes = 32 << 20

// drain sends the answer and reads the rest of a refused body until the deadline of readBody.
// Unread data would reset the connection, and a client that is still sending would not get the
// answer. A client that waits for "100 Continue" sends nothing after an answer.
func drain(w http.ResponseWriter, r *http.Request) {
	if http.NewResponseController(w).Flush() == nil && r.Header.Get("Expect") == "" {
		io.CopyN(io.Discard, r.Body, drainBytes)
	}
}

func fill(buf *buffer, r io.Reader, limit int64) error {
	for {
		if len(buf.b) == cap(buf.b) {
			buf.b = append(buf.b, 0)[:len(buf.b)]
		}
		n, err := r.Read(buf.b[len(buf.b):cap(buf.b)])
		buf.b = buf.b[:len(buf.b)+n]
		if int64(len(buf.b)) > limit {
			return errTooLarge
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// inbound is one POST after its body has been read and parsed.
type inbound struct {
	w      http.ResponseWriter
	r      *http.Request
	who    *principal.Principal
	server string
	size   int64
	json   bool    // the client accepts application/json
	sse    bool    // the client accepts text/event-stream
	stream bool    // and prefers it
	header string  // MCP-Protocol-Version
	buf    *buffer // of the body; nil: the message keeps it
}

func (in *inbound) release() {
	if in.buf != nil {
		bodies.put(in.buf)
	}
}
