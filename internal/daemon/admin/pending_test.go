package admin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/trust/principal"
)

// TestARequestForHeldCallsWaitsForAChange: with the digest of the list that the caller has, the
// answer comes when the calls differ, after half a minute, or when the caller may not wait any
// longer. Each request passes the gate once.
func TestARequestForHeldCallsWaitsForAChange(t *testing.T) {
	one := []admin.PendingCall{{N: 1, Server: "bank", Tool: "pay", Args: json.RawMessage(`{"a":"<b>"}`)}}
	two := append(one[:1:1], admin.PendingCall{N: 2})
	for _, tc := range []struct {
		name             string
		unlike           []admin.PendingCall
		changes, refuses time.Duration // 0: never
		want             []admin.PendingCall
		within           time.Duration
	}{
		{name: "no list", want: one},
		{name: "another list", unlike: two, want: one},
		{name: "a change", unlike: one, changes: 5500 * time.Millisecond, want: two, within: 6 * time.Second},
		{name: "no change", unlike: one, want: one, within: 30 * time.Second},
		{name: "no right", unlike: one, refuses: 2500 * time.Millisecond, want: one, within: 3 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var entered, left atomic.Int32
				began := time.Now()
				past := func(d time.Duration) bool { return d > 0 && time.Since(began) >= d }
				paths := admin.Paths(admin.Options{Approver: admin.Approver{
					Enter: func(*http.Request, *principal.Principal, string) (func(), error) {
						entered.Add(1)
						return func() { left.Add(1) }, nil
					},
					Pending: func(context.Context) []admin.PendingCall {
						if past(tc.changes) {
							return two
						}
						return one
					},
					Waits: func(*principal.Principal) bool { return !past(tc.refuses) },
				}})
				path := "/admin/v1/approvals"
				if tc.unlike != nil {
					path += "?unlike=" + admin.DigestOfPending(tc.unlike)
				}
				w := httptest.NewRecorder()
				paths["/admin/v1/approvals"](w, httptest.NewRequest(http.MethodGet, path, nil), nil)
				var got []admin.PendingCall
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(admin.DigestOfPending(tc.want), admin.DigestOfPending(got)); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				if took := time.Since(began); took != tc.within {
					t.Errorf("the answer came after %v, want %v", took, tc.within)
				}
				if entered.Load() != 1 || left.Load() != 1 {
					t.Errorf("the request entered %d times and left %d times, want 1", entered.Load(), left.Load())
				}
			})
		})
	}
}
