package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/doorward/doorward/internal/base/protocol"
)

// question is one HTTP request with a JSON answer.
type question struct {
	method, path string
	token        string                     // of a delivery session; empty: none
	in           any                        // the body; nil: none
	failure      func(*http.Response) error // returns the error for a status outside of 2xx
}

// ask sends q and decodes the answer into out; nil: the answer is ignored.
func (c *Client) ask(ctx context.Context, q question, out any) error {
	req, err := q.request(ctx)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	resp, err := c.exchange(req)
	if err != nil {
		return fmt.Errorf("asking the daemon: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return q.failure(resp)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("reading the daemon's answer: %w", err)
	}
	return nil
}

func (q question) request(ctx context.Context) (*http.Request, error) {
	var body io.Reader
	if q.in != nil {
		b, err := json.Marshal(q.in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, base+q.path, body)
	if err != nil {
		return nil, err
	}
	if q.in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	if q.token != "" {
		req.Header.Set(protocol.HeaderSession, q.token)
	}
	return req, nil
}
