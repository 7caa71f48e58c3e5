package signin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/doorward/doorward/internal/upstream/egress"
)

const (
	maxDocument = 256 << 10 // bytes of one answer
	fetchTime   = 20 * time.Second
)

// errRedirect is the error for a redirect: only an answer from the requested URL counts.
var errRedirect = errors.New("a redirect, which is not followed")

// answer is a response, with its whole body.
type answer struct {
	status int
	header http.Header
	json   bool
	body   []byte
}

// do makes one request over a connection of its own. All requests of this package are made here.
func (t *target) do(ctx context.Context, method string, u *url.URL, header http.Header, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	client := egress.NewClient(egress.Options{AllowPrivate: t.private(u), Origin: egress.Origin(u), Header: fetchTime, Proxy: t.Proxy})
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, errors.New("the request cannot be made") // the error quotes the URL
	}
	req.Header, req.Close = header, true
	if header["User-Agent"] == nil {
		header["User-Agent"] = []string{"doorward"}
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, bare(err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header, json: isJSON(resp.Header)}
	if resp.StatusCode/100 == 3 {
		return a, errRedirect
	}
	if isEvents(resp.Header) {
		return a, nil // a stream does not end by itself, and its content is not needed
	}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return a, fmt.Errorf("reading the answer: %w", err)
	case len(a.body) > maxDocument:
		return a, errors.New("the answer is too long")
	}
	return a, nil
}

// bare returns the error of a failed request without the URL, whose query may be secret.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func isJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

func isEvents(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

// errNoDocument says that no document is published at a place.
var errNoDocument = errors.New("not found")

// document fetches a JSON document. errNoDocument: the server has none there. A page or a redirect to one is what many
// sites have at an address that they do not know.
func (t *target) document(ctx context.Context, u *url.URL, into any) error {
	a, err := t.do(ctx, http.MethodGet, u, http.Header{"Accept": {"application/json"}}, nil)
	switch {
	case errors.Is(err, errRedirect):
		return fmt.Errorf("%w: %w", errNoDocument, err)
	case err != nil:
		return err
	case a.status/100 == 4:
		return errNoDocument
	case a.status != http.StatusOK:
		return fmt.Errorf("HTTP %d", a.status)
	case !a.json:
		return fmt.Errorf("%w: it is not application/json", errNoDocument)
	}
	return decode(a.body, into)
}

// decode is strict, so that all parsers read a document in the same way: it refuses duplicate names and invalid
// UTF-8, and names match exactly.
func decode(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return errors.New("it is not the JSON object that is expected") // the error may quote it
	}
	return nil
}

// form posts url-encoded values.
func (t *target) form(ctx context.Context, u *url.URL, values url.Values, authorization string) (answer, error) {
	h := http.Header{"Accept": {"application/json"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	if authorization != "" {
		h["Authorization"] = []string{authorization}
	}
	return t.do(ctx, http.MethodPost, u, h, []byte(values.Encode()))
}

// code returns the error code of an answer, if it has a well-formed one (RFC 6749, section 5.2).
func (a answer) code() string {
	var e struct {
		Error string `json:"error"`
	}
	if !a.json || decode(a.body, &e) != nil || !isCode(e.Error) {
		return ""
	}
	return e.Error
}

// refuses reports whether an answer is an error in place of a token, whatever its status: GitHub answers 200 with an error.
func (a answer) refuses() bool {
	var e struct {
		Access jsontext.Value `json:"access_token"`
		Error  jsontext.Value `json:"error"`
	}
	return a.json && decode(a.body, &e) == nil && len(e.Access) == 0 && len(e.Error) > 0
}

// isCode reports whether s is a registered error code (IANA, OAuth Extensions Error Registry, and RFC 6749) or one of
// GitHub (docs.github.com, "Troubleshooting OAuth app access token request errors").
// Any other text is not shown, because its sender knows Doorward's secrets and may repeat them.
func isCode(s string) bool { return slices.Contains(codes, s) }

var codes = []string{
	"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
	"access_denied", "unsupported_response_type", "server_error", "temporarily_unavailable", "invalid_target",
	"invalid_redirect_uri", "invalid_client_metadata", "invalid_software_statement", "unapproved_software_statement",
	"unsupported_token_type", "invalid_token", "insufficient_scope", "invalid_dpop_proof", "use_dpop_nonce",
	"insufficient_user_authentication", "interaction_required", "login_required", "account_selection_required", "consent_required",
	"bad_refresh_token", "bad_verification_code", "incorrect_client_credentials", "redirect_uri_mismatch", "unverified_user_email",
}
