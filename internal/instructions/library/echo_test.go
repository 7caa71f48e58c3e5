package library_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestARemoteThatRepeatsTheCredentialIsNotQuoted: a credential that the remote
// repeats anywhere in its answers is in no log, reason or problem.
func TestARemoteThatRepeatsTheCredentialIsNotQuoted(t *testing.T) {
	t.Parallel()
	const hidden = "5ecret-of-the-library"
	answers := doortest.Echoes(hidden)
	escaped := ""
	for _, c := range hidden {
		escaped += fmt.Sprintf(`\u%04x`, c)
	}
	for what, name := range map[string]string{"": hidden, ", escaped": escaped} {
		for kind, list := range map[string]string{
			"name":        `{"templates":[{"name":"` + name + `","class":"voice","tier":"behavioural","version":"1"}]}`,
			"bad name":    `{"templates":[{"name":"/` + name + `","class":"voice","tier":"behavioural","version":"1"}]}`,
			"class":       `{"templates":[{"name":"a","class":"` + name + `","tier":"` + name + `","version":"` + name + `"}]}`,
			"another key": `{"` + name + `":1}`,
		} {
			answers["a list with it as "+kind+what] = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(list), list)
		}
	}
	for _, name := range doortest.Names(answers) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, far("a", "first"))
			o.token = "Bearer " + hidden
			var asked sync.WaitGroup
			asked.Add(2)
			var times atomic.Int32
			o.answer("", func(w http.ResponseWriter, _ *http.Request) {
				if times.Add(1) <= 2 {
					asked.Done()
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = conn.Write([]byte(answers[name]))
			})
			options, log := from(o), new(said)
			options.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			options.Remote.Every = time.Millisecond
			options.Remote.Authorize = func(context.Context) (string, error) { return "Bearer " + hidden, nil }
			b := newBed(t, options, "")
			asked.Wait()
			_, state := b.Set()
			if text := fmt.Sprintf("%+v %s", state, log); doortest.Repeats(text, hidden) {
				t.Errorf("%s", text)
			}
		})
	}
}
