package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/instructions/deliver"
)

// Without its database the console cannot tell who opened it. The page says so, and where the
// reason is.
func TestTheConsoleNamesADatabaseThatDoesNotWork(t *testing.T) {
	t.Parallel()
	status, text := failure(fmt.Errorf("looking up the registered agents: %w", deliver.ErrStore))
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "doorward status") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := failure(errAway); status != http.StatusServiceUnavailable || strings.Contains(text, "an agent opened") {
		t.Errorf("a part that is off: %d %s", status, text)
	}
}
