package notice_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/notice"
	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/overload"
)

// received is one request at the receiver.
type received struct {
	id, stamp, signature string
	body                 []byte
}

// receiver answers with the statuses in turn, and then with 204.
type receiver struct {
	mu       sync.Mutex
	statuses []int
	got      []received
	came     chan struct{}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, received{req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp"), req.Header.Get("webhook-signature"), body})
	status := http.StatusNoContent
	if len(r.statuses) > 0 {
		status, r.statuses = r.statuses[0], r.statuses[1:]
	}
	if status == http.StatusFound {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(status)
	r.came <- struct{}{}
}

// verified checks a request as the text of Standard Webhooks tells a receiver to. It does
// not use the code under test.
func (r received) verified(t *testing.T, coded string) bool {
	t.Helper()
	sent, err := strconv.ParseInt(r.stamp, 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(r.id + "." + r.stamp + "."))
	mac.Write(r.body)
	want := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return slices.ContainsFunc(strings.Fields(r.signature), func(s string) bool {
		version, sum, _ := strings.Cut(s, ",")
		return version == "v1" && hmac.Equal([]byte(sum), []byte(want))
	})
}

const coded = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// deliver tells a receiver of a call, and waits for that many requests and the end of the
// notice. It returns the requests and the log.
func deliver(t *testing.T, r *receiver, args bool, many int, expires time.Time) ([]received, string) {
	t.Helper()
	r.came = make(chan struct{}, 100)
	web := httptest.NewServer(r)
	defer web.Close()
	var said bytes.Buffer
	client := doortest.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	n := notice.New(notice.Options{Log: slog.New(slog.NewTextHandler(&said, nil)),
		Webhook: &notice.Webhook{URL: secret.New(web.URL + "/path-secret"), Secret: secret.New("whsec_" + coded), Args: args, Client: client,
			Pauses: []time.Duration{time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}}})
	n.Tell(notice.Call{N: 7, Expires: expires, Client: "agent", Principal: "uid:1", Server: "files", Tool: `w"rite`, Action: "tools/call", Args: `{"canary":1}`})
	for range many {
		select {
		case <-r.came:
		case <-time.After(20 * time.Second):
			t.Fatal("no request came")
		}
	}
	n.Wait()
	n.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got, said.String()
}

func TestAWebhookIsSignedAndHoldsNoArguments(t *testing.T) {
	t.Parallel()
	for _, args := range []bool{false, true} {
		got, said := deliver(t, &receiver{}, args, 1, time.Now().Add(time.Hour))
		if len(got) != 1 || !got[0].verified(t, coded) || said != "" {
			t.Fatalf("%d requests, %+v, log %s", len(got), got, said)
		}
		forged := got[0]
		forged.body = bytes.Replace(forged.body, []byte("files"), []byte("mails"), 1)
		if forged.verified(t, coded) {
			t.Error("another body has the same signature")
		}
		var body struct {
			Type string
			Data struct {
				N            uint64
				Server, Tool string
				Arguments    json.RawMessage
			}
		}
		if err := json.Unmarshal(got[0].body, &body); err != nil || body.Type != "approval.asked" || body.Data.N != 7 || body.Data.Tool != `w"rite` {
			t.Errorf("%v %+v", err, body)
		}
		if has := strings.Contains(string(got[0].body), "canary"); has != args {
			t.Errorf("with arguments %t: %s", args, got[0].body)
		}
	}
}

// A webhook is sent again under the same id, at most three times, when the receiver is busy
// or fails. It is not when the receiver refuses or redirects, or the call has expired.
func TestRetriesOfAWebhookAreBounded(t *testing.T) {
	t.Parallel()
	hour := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		statuses []int
		want     int
		fails    bool
		expires  time.Time
	}{
		"well again":     {[]int{503, 429}, 3, false, hour},
		"ill for good":   {[]int{500, 500, 500, 500, 500, 500}, 4, true, hour},
		"refused":        {[]int{400}, 1, true, hour},
		"gone":           {[]int{410}, 1, true, hour},
		"leads away":     {[]int{302}, 1, true, hour},
		"expired before": {nil, 0, true, time.Now().Add(-time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, said := deliver(t, &receiver{statuses: c.statuses}, false, c.want, c.expires)
			if len(got) != c.want || (said != "") != c.fails {
				t.Errorf("%d requests, log %q", len(got), said)
			}
			if strings.Contains(said, "path-secret") || strings.Contains(said, coded) {
				t.Errorf("the log has the address or the secret: %s", said)
			}
			for _, r := range got {
				if r.id != got[0].id || !r.verified(t, coded) {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// Notices that wait are bounded for a flood of held calls, and each that is dropped is logged.
func TestNoticesAreBounded(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	release := make(chan struct{})
	n := notice.New(notice.Options{Command: []string{"x"}, Log: slog.New(slog.NewTextHandler(&said, nil)), Run: func(ctx context.Context, _, env []string) error {
		if slices.ContainsFunc(env, func(s string) bool { return strings.Contains(s, "canary") }) {
			t.Error("a program got arguments")
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}})
	start := time.Now()
	for i := range 1000 {
		n.Tell(notice.Call{N: uint64(i), Args: "canary"})
	}
	if took := time.Since(start); took > 2*time.Second+overload.Late() {
		t.Errorf("telling took %v", took)
	}
	n.Close()
	if got := strings.Count(said.String(), "too many notices"); got != 1000-64 {
		t.Errorf("%d notices found no place", got)
	}
	close(release)
}

// A secret of Standard Webhooks or another text of 24 bytes is a key; a shorter one is not.
func TestKeys(t *testing.T) {
	t.Parallel()
	made, err := notice.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	for text, good := range map[string]bool{strings.TrimSpace(string(made)): true, "whsec_" + coded: true, "a text of twenty-four ch": true, "whsec_short": false, "whsec_%%%": false, "short": false} {
		if _, err := notice.Key(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
