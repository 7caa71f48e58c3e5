package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/doorward/doorward/internal/base/sse"
)

// AdminError is an answer of the local API that is a failure, with what its body
// says. It is an ErrStatus.
type AdminError struct {
	Status int
	Code   string // constant, such as AGENT_SHELL; may be empty
	Why    string // constant; may be empty
	Ref    uint64 // the number of the audit record; 0: none
}

func (e *AdminError) Error() string {
	text := ErrStatus(e.Status).Error()
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	return text
}

func (e *AdminError) Unwrap() error { return ErrStatus(e.Status) }

// maxFailure bounds the body of a failure.
const maxFailure = 64 << 10

func adminError(resp *http.Response) error {
	e := &AdminError{}
	if json.NewDecoder(io.LimitReader(resp.Body, maxFailure)).Decode(e) != nil {
		e = &AdminError{} // it is not one of our texts
	}
	e.Status = resp.StatusCode
	return e
}

// endEvent is how the local API ends a stream itself.
const endEvent = "end"

// AdminStream reads an event stream of the local API and calls f for the data
// of each event until f returns an error, which it returns. nil: the stream has
// ended, since the daemon has. An *AdminError is why the daemon has ended it,
// or has not begun.
func (c *Client) AdminStream(ctx context.Context, path string, f func(data []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("Accept", "text/event-stream, application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("asking the daemon: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return adminError(resp)
	}
	var failed error
	// A stream that breaks off has ended too: so does that of a killed daemon.
	_ = c.events(resp.Body, func(e sse.Event) bool {
		switch {
		case e.Name == endEvent:
			ended := &AdminError{Status: http.StatusInternalServerError}
			_ = json.Unmarshal(e.Data, ended) // what cannot be read says no more
			failed = ended
		case e.Data != nil:
			failed = f(e.Data)
		}
		return failed == nil
	})
	if failed == nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return failed
}

// Admin reads one path of the local API into out. An *AdminError is a failure
// that the daemon answered.
func (c *Client) Admin(ctx context.Context, path string, out any) error {
	return c.ask(ctx, question{method: http.MethodGet, path: path, failure: adminError}, out)
}

// AdminPost sends in to one path of the local API and reads the answer into
// out, as Admin does.
func (c *Client) AdminPost(ctx context.Context, path string, in, out any) error {
	return c.ask(ctx, question{method: http.MethodPost, path: path, in: in, failure: adminError}, out)
}
