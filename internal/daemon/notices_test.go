package daemon

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/relay/approval"
)

// TestNoticesGoThroughEgress: a webhook on this machine is told where the configuration
// allows private addresses, signed with the secret that is made in the state directory,
// and otherwise it is not dialled.
func TestNoticesGoThroughEgress(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	for _, allowed := range []bool{false, true} {
		got := make(chan bool, 8)
		web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			text, err := os.ReadFile(filepath.Join(state, webhookSecret))
			key, bad := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(string(text), "whsec_")))
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(r.Header.Get("webhook-id") + "." + r.Header.Get("webhook-timestamp") + "." + string(body)))
			got <- err == nil && bad == nil && len(key) >= 24 && r.Header.Get("webhook-signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
		}))
		defer web.Close()
		var said bytes.Buffer
		logged := make(chan bool, 8)
		d := &Daemon{o: Options{StateDir: state, Config: &config.Config{}}, log: slog.New(slog.NewTextHandler(writeFunc(func(p []byte) (int, error) {
			defer func() { logged <- true }()
			return said.Write(p) // the handler writes one line at a time
		}), nil))}
		tell, err := openNotices(d, config.ApprovalsNotify{Webhook: secret.New(web.URL + "/path-secret"), Private: allowed, Desktop: "off"})
		if err != nil {
			t.Fatal(err)
		}
		expires := time.Now().Add(time.Minute)
		if !allowed {
			expires = time.Now().Add(3 * time.Second) // it is tried again until then
		}
		tell(approval.Question{N: 1, Expires: expires, Server: "s", Tool: "t", Args: `{}`})
		select {
		case signed := <-got:
			if !allowed || !signed {
				t.Errorf("allowed %t: told, signed %t", allowed, signed)
			}
		case <-logged:
			if allowed {
				t.Error("not told")
			}
		case <-time.After(30 * time.Second):
			t.Errorf("allowed %t: neither told nor refused", allowed)
		}
		d.Close()
		if refused := strings.Contains(said.String(), "not allowed as an upstream"); refused == allowed || strings.Contains(said.String(), "path-secret") {
			t.Errorf("allowed %t: %s", allowed, said.String())
		}
	}
	if fi, err := os.Stat(filepath.Join(state, webhookSecret)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
}

type writeFunc func(p []byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }
