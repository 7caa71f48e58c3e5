package notice

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// Webhook is a receiver of signed notices, in the form of Standard Webhooks
// (https://www.standardwebhooks.com), for which there are libraries in most languages.
type Webhook struct {
	URL    secret.Value
	Secret secret.Value // see Key
	Args   bool         // send the arguments of the call
	Client *http.Client // from the package that dials
	Pauses []time.Duration
}

// secretPrefix is the prefix of a secret in base64.
const secretPrefix = "whsec_"

// leastSecret is the smallest number of bytes of a key.
const leastSecret = 24

// NewSecret makes a secret.
func NewSecret() ([]byte, error) {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return []byte(secretPrefix + base64.StdEncoding.EncodeToString(b) + "\n"), nil
}

// Key returns the key of a secret: the decoded base64 after the prefix whsec_, or else the
// bytes of text.
func Key(text string) ([]byte, error) {
	key := []byte(text)
	if coded, ok := strings.CutPrefix(text, secretPrefix); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(coded); err != nil {
			return nil, errors.New("the text after whsec_ is not base64")
		}
	}
	if len(key) < leastSecret {
		return nil, fmt.Errorf("a secret must have at least %d bytes", leastSecret)
	}
	return key, nil
}

// Pauses returns the default pauses between attempts.
func Pauses() []time.Duration { return []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} }

// message is the body of a webhook.
type message struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"`
	Data      data   `json:"data"`
}

type data struct {
	N         uint64          `json:"n"`
	Client    string          `json:"client"`
	Principal string          `json:"principal"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Action    string          `json:"action"`
	Expires   string          `json:"expires"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Rest      json.RawMessage `json:"rest,omitempty"`
}

func (w *Webhook) body(c Call) ([]byte, error) {
	n := message{Type: "approval.asked", Timestamp: time.Now().UTC().Format(time.RFC3339),
		Data: data{N: c.N, Client: c.Client, Principal: c.Principal, Server: c.Server, Tool: c.Tool, Action: c.Action, Expires: c.Expires.UTC().Format(time.RFC3339)}}
	if w.Args && c.Args+c.Rest != "" {
		n.Data.Arguments, n.Data.Rest = json.RawMessage(c.Args), json.RawMessage(c.Rest)
	}
	return json.Marshal(n)
}

// refusal is an answer after which the notice is not sent again.
type refusal struct{ status int }

func (r refusal) Error() string { return fmt.Sprintf("the receiver answered %d", r.status) }

// send delivers a notice. If the receiver cannot be reached, is busy or fails, it tries again
// after each pause, under the same id, until the call expires.
func (w *Webhook) send(ctx context.Context, c Call) error {
	ctx, cancel := context.WithDeadline(ctx, c.Expires)
	defer cancel()
	body, err := w.body(c)
	if err != nil {
		return fmt.Errorf("writing the notice: %w", err)
	}
	id := "msg_" + rand.Text()
	for try := 0; ; try++ {
		err := w.post(ctx, id, body)
		var no refusal
		if err == nil || errors.As(err, &no) || try == len(w.Pauses) {
			return err
		}
		select {
		case <-time.After(w.Pauses[try]):
		case <-ctx.Done():
			return err
		}
	}
}

// post makes one attempt.
func (w *Webhook) post(ctx context.Context, id string, body []byte) error {
	key, err := Key(w.Secret.Reveal())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL.Reveal(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the address of the webhook cannot be used") // the error would contain the URL
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"doorward"}, "Webhook-Id": {id}, "Webhook-Timestamp": {stamp},
		"Webhook-Signature": {sign(key, id, stamp, body)}}
	resp, err := w.Client.Do(r)
	if err != nil {
		var quoting *url.Error
		if errors.As(err, &quoting) {
			err = quoting.Err
		}
		return fmt.Errorf("sending the notice: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be reused
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return nil
	case s >= 500 || s == http.StatusTooManyRequests || s == http.StatusRequestTimeout:
		return fmt.Errorf("the receiver answered %d", s)
	default:
		return refusal{s}
	}
}

// sign returns the signature of a notice, version 1: HMAC-SHA256 over id, time and body.
func sign(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
