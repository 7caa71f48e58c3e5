package signin

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/test/doortest"
)

// said collects a log.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

// TestNothingOfASecretIsRepeated has the authorization server of a machine
// repeat the client's secret, and the token that it gave, at every place of
// every answer. Neither is in an error nor in the log, at any level.
func TestNothingOfASecretIsRepeated(t *testing.T) {
	t.Parallel()
	const hidden = "5ecret-of-the-client"
	answers := doortest.Echoes(hidden)
	for what, body := range map[string]string{
		"error code":     `{"error":"` + hidden + `","error_description":"` + hidden + `"}`,
		"kind of token":  `{"access_token":"x","token_type":"` + hidden + `"}`,
		"bad token":      `{"access_token":"` + hidden + ` x","token_type":"bearer"}`,
		"no JSON":        `{"` + hidden,
		"another issuer": `{"issuer":"https://` + hidden + `.example","token_endpoint":"https://` + hidden + `.example/"}`,
		"bad endpoint":   `{"issuer":"ISSUER","token_endpoint":"http://[` + hidden + `","code_challenge_methods_supported":["S256"]}`,
		"other endpoint": `{"issuer":"ISSUER","token_endpoint":"https://` + hidden + `.example/","code_challenge_methods_supported":["S256"]}`,
		"a method":       `{"issuer":"ISSUER","token_endpoint":"ISSUER/token","token_endpoint_auth_methods_supported":["` + hidden + `"]}`,
	} {
		for _, status := range []string{"200 OK", "400 Bad Request", "500 " + hidden} {
			answers[what+" with "+status] = fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: LENGTH\r\n\r\n%s", status, body)
		}
	}
	for _, at := range []string{"/token", "/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource/mcp"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			failed := 0
			for _, name := range doortest.Names(answers) {
				log, err := withAnswer(t, at, answers[name], hidden)
				if err != nil {
					failed++
				}
				if text := fmt.Sprintf("%v %+v %s", err, err, log); doortest.Repeats(text, hidden) {
					t.Errorf("%s: %s", name, text)
				}
			}
			if failed < 30 {
				t.Errorf("only %d exchanges failed: the answers are not what they were", failed)
			}
		})
	}
}

// withAnswer signs in as a machine, with an answer of raw bytes at one place.
func withAnswer(t *testing.T, at, answer, hidden string) (log string, err error) {
	t.Helper()
	p := newProvider(t, nil)
	real := p.Config.Handler
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != at {
			real.ServeHTTP(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		text := strings.ReplaceAll(answer, "ISSUER", p.URL)
		if head, body, ok := strings.Cut(text, "\r\n\r\n"); ok {
			text = strings.Replace(head, "LENGTH", fmt.Sprint(len(body)), 1) + "\r\n\r\n" + body
		}
		_, _ = conn.Write([]byte(text))
	})
	s := p.settings()
	s.Grant, s.ClientID, s.ClientSecret, s.Issuer = GrantMachine, "robot", secret.New(hidden), p.URL
	var text said
	src, err := NewSource(s, newStore(t), slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	_, _, err = call(t, src, p.URL+"/mcp")
	return text.text.String(), err
}

// The scopes of a challenge are neither logged nor in an error: a server can
// ask for the token that it was sent, as a scope.
func TestScopesOfAChallengeAreNotLogged(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	var text said
	src, err := NewSource(p.settings(), store, slog.New(slog.NewTextHandler(&text, nil)), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	used, err := src.Authorize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimPrefix(used, "Bearer ")
	resp := &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Www-Authenticate": {`Bearer error="insufficient_scope", scope="` + token + `"`}}}
	_, err = src.Refused(t.Context(), used, resp)
	if said := fmt.Sprint(err, text.text.String()); !strings.Contains(said, "more scopes") || doortest.Repeats(said, token) {
		t.Errorf("%s", said)
	}
}
