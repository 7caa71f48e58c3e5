package client

import (
	"errors"
	"net/http"
	"net/url"
)

// exchange sends a request. Its errors do not name the address, which is a path of the local API
// under a host that does not exist, and which a reader would take for the problem.
func (c *Client) exchange(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	var about *url.Error
	if errors.As(err, &about) {
		err = about.Err
	}
	return resp, err
}
