//go:build interop

package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// slowPerson is longer than the minute after which clients of the TypeScript SDK give up,
// and longer than Doorward's own wait for any other client.
const slowPerson = 90 * time.Second

// TestAnApprovalAfter90SecondsGivesTheResult: after a call that the operator approves only
// after 90 s, the model's next turn has the result of the tool, once.
func TestAnApprovalAfter90SecondsGivesTheResult(t *testing.T) {
	t.Parallel()
	for _, name := range words("Claude_Code Codex") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			decided := make(chan string, 1)
			go func() {
				n, since := o.held()
				<-time.After(time.Until(since.Add(slowPerson)))
				decided <- o.settle(n, map[string]any{"decision": "approve"})
			}()
			m := o.asks(t, name)
			if bad := <-decided; bad != "" {
				t.Error(bad)
			}
			inOrder(t, m.Seen(), 1)
			if got := m.Requests(); len(got) != 2 {
				t.Errorf("requests to the model: %q", got)
			}
		})
	}
}

// TestADenialGivesTheReason: after a denied call the model's next turn has the operator's
// reason, and no result of the tool.
func TestADenialGivesTheReason(t *testing.T) {
	const why = "not on a Friday afternoon"
	for _, name := range words("Claude_Code Codex") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			decided := make(chan string, 1)
			go func() {
				n, _ := o.held()
				decided <- o.settle(n, map[string]any{"decision": "deny", "why": why})
			}()
			m := o.asks(t, name)
			if bad := <-decided; bad != "" {
				t.Error(bad)
			}
			if seen := m.Seen(); len(seen) != 1 || !strings.Contains(seen[0], why) || strings.Contains(seen[0], `{"turn":0}`) {
				t.Errorf("the model saw %q, want the reason %q", seen, why)
			}
		})
	}
}

// operator decides the held calls of a daemon, with a token for approvals.
type operator struct {
	t     *testing.T
	d     *doortest.Daemon
	token string
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	d := house{servers: map[string]server{
		"recorder": stdio(fixture.Recorder(t, "legacy"), map[string]any{"tools": map[string]any{"ask": words("echo")}})}}.start(t)
	out, err := d.Command("token", "new", "operator", "--scope", "approve,admin").Output()
	must(t, err)
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "dw_") {
			return &operator{t, d, word}
		}
	}
	t.Fatalf("no token in the answer of %d bytes", len(out))
	return nil
}

// asks runs a program whose model calls the held tool once and then ends.
func (o *operator) asks(t *testing.T, name string) *fixture.Model {
	t.Helper()
	a := fixture.Agents()[strings.ReplaceAll(name, "_", " ")]
	m := fixture.NewModel(t, use(a.Prefix+"echo", map[string]any{"turn": 0}), func(fixture.Talk) fixture.Answer { return fixture.Say("done") })
	if said := at(t, a, m, t.TempDir(), doorAt(o.d, "connect", "recorder")); said != "done" {
		t.Errorf("%s ended with %q", name, said)
	}
	return m
}

// held waits until a call is held, and returns its number and the time of its beginning.
func (o *operator) held() (n uint64, since time.Time) {
	var all []struct {
		N    uint64
		Time time.Time
	}
	if doortest.Becomes(2*time.Minute, func() bool { return o.request(http.MethodGet, "", nil, &all) == nil && len(all) == 1 }) {
		return all[0].N, all[0].Time
	}
	return 0, time.Now() // deciding it fails
}

// settle decides a held call, and returns the problem, empty if there is none.
func (o *operator) settle(n uint64, decision any) string {
	if err := o.request(http.MethodPost, fmt.Sprintf("/%d", n), decision, nil); err != nil {
		return fmt.Sprintf("deciding call %d: %v", n, err)
	}
	return ""
}

func (o *operator) request(method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(o.t.Context(), method, o.d.URL+"/admin/v1/approvals"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := doortest.Client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, req.URL.Path, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
