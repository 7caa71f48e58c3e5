package health

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon/admin"
)

// TestEachStateOfAServerHasItsRemedy: what doctor says to do about a server fits its state.
func TestEachStateOfAServerHasItsRemedy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		server admin.Server
		state  string
		todo   string
	}{
		{admin.Server{Name: "a", State: "idle"}, OK, ""},
		{admin.Server{Name: "a", State: "failing", Reason: "exit status 3"}, Fail, "doorward status"},
		{admin.Server{Name: "a", State: "refused", Reason: "no such variable"}, Fail, "doorward status"},
		{admin.Server{Name: "a", State: "withheld", Reason: "changed"}, Fail, "doorward trust a"},
		{admin.Server{Name: "a", State: "failing", Kind: builtin, Reason: "no database"}, Fail, "the database of store"},
		{admin.Server{Name: "a", State: "idle", Ended: true, Reason: "ended during a call: exit status 7"}, Warn, "doorward status"},
		{admin.Server{Name: "a", State: "connected", Withheld: []string{"tool x"}}, Warn, "doorward trust a"},
	} {
		got := ofServer(tc.server)
		if got.State != tc.state || !strings.Contains(got.Todo, tc.todo) || (tc.todo == "") != (got.Todo == "") {
			t.Errorf("%s: %+v", tc.server.State, got)
		}
	}
}
