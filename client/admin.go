package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/doorward/doorward/internal/base/sse"
)

// AdminError is a failure answered by the local API, with the content of its body. It
// wraps an ErrStatus.
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

// maxFailure is the most bytes that are read of the body of a failure.
const maxFailure = 64 << 10

func adminError(resp *http.Response) error {
	e := &AdminError{}
	if json.NewDecoder(io.LimitReader(resp.Body, maxFailure)).Decode(e) != nil {
		e = &AdminError{} // the body is not one of Doorward's
	}
	e.Status = resp.StatusCode
	return e
}

// endEvent is the name of the event with which the local API ends a stream.
const endEvent = "end"

// AdminStream reads an event stream of the local API and calls f with the data
// of each event until f returns an error, which AdminStream returns. It returns nil if
// the connection ends, as when the daemon stops, and an *AdminError if the daemon
// refuses the stream or ends it by an event.
func (c *Client) AdminStream(ctx context.Context, path string, f func(data []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("Accept", "text/event-stream, application/json")
	resp, err := c.exchange(req)
	if err != nil {
		return fmt.Errorf("asking the daemon: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return adminError(resp)
	}
	var failed error
	// An error of the stream counts as its end: that is how the stream of a killed daemon ends.
	_ = c.events(resp.Body, func(e sse.Event) bool {
		switch {
		case e.Name == endEvent:
			ended := &AdminError{Status: http.StatusInternalServerError}
			_ = json.Unmarshal(e.Data, ended) // data that cannot be read adds nothing
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

// Admin reads one path of the local API into out. The error is an *AdminError if the
// daemon answered with a failure.
func (c *Client) Admin(ctx context.Context, path string, out any) error {
	return c.ask(ctx, question{method: http.MethodGet, path: path, failure: adminError}, out)
}

// AdminPost sends in to one path of the local API and reads the answer into
// out, as Admin does.
func (c *Client) AdminPost(ctx context.Context, path string, in, out any) error {
	return c.ask(ctx, question{method: http.MethodPost, path: path, in: in, failure: adminError}, out)
}
