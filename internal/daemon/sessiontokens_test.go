package daemon

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// TestOnlyAFailureOfTheDatabaseIsAnOutage: a database that hangs or is closed is an outage.
// A caller that leaves, a refusal and any other error are none.
func TestOnlyAFailureOfTheDatabaseIsAnOutage(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), AnyFilesystem: true, Migrations: mail.Migrations(),
		Record: func([]any) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	book, err := mail.Open(t.Context(), db, mail.Options{Node: "box", Sign: func(...string) string { return "" }, Upkeep: agent.Upkeep})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) error { _, err := book.Agents(ctx); return err }
	left, leave := context.WithCancel(t.Context())
	leave()
	late, end := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer end()
	if err := ask(left); err == nil || storeFailed(left, err) {
		t.Errorf("a caller that leaves: %v", err)
	}
	if err := ask(late); !storeFailed(late, err) {
		t.Errorf("one that hangs: %v", err)
	}
	if storeFailed(t.Context(), nil) || storeFailed(t.Context(), agent.ErrAgentShell) || storeFailed(t.Context(), errors.New("odd")) ||
		storeFailed(t.Context(), fmt.Errorf("%w: %w", store.ErrUnavailable, context.Canceled)) {
		t.Error("something else counts as an outage")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context()); !storeFailed(t.Context(), err) {
		t.Errorf("one that is away: %v", err)
	}
	if err := ask(left); storeFailed(left, err) {
		t.Errorf("a caller that leaves meanwhile: %v", err)
	}
}
