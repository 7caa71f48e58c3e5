package library

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// send makes one request, and once more if its credential was refused and Refused has a better one. Without a better one
// the refusal of a credential stands, whatever the reason: it is a decision of the remote.
func (r *remote) send(ctx context.Context, u *url.URL, etag string) (*http.Request, *http.Response, error) {
	req, resp, err := r.once(ctx, u, etag)
	if err != nil || r.Refused == nil || !isRefusal(resp) {
		return req, resp, err
	}
	carried := req.Header.Get("Authorization")
	again, err := r.Refused(ctx, carried, resp)
	if !again && (err == nil || carried != "") {
		return req, resp, nil
	}
	resp.Body.Close()
	if err != nil {
		return nil, nil, fmt.Errorf("the credential for it: %w", failure(ctx, err))
	}
	return r.once(ctx, u, etag)
}

func isRefusal(resp *http.Response) bool {
	return resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
}

func (r *remote) once(ctx context.Context, u *url.URL, etag string) (*http.Request, *http.Response, error) {
	req, err := r.request(ctx, u, etag)
	if err != nil {
		return nil, nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, nil, failure(ctx, err)
	}
	return req, resp, nil
}

func (r *remote) request(ctx context.Context, u *url.URL, etag string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("the request cannot be made") // the error quotes the URL
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "doorward")
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	if r.Authorize == nil {
		return req, nil
	}
	value, err := r.Authorize(ctx)
	if err != nil {
		return nil, fmt.Errorf("the credential for it: %w", failure(ctx, err))
	}
	if value != "" {
		req.Header.Set("Authorization", value)
	}
	return req, nil
}
