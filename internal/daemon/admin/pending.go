package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

const (
	// pendingRound is how long one request waits for a change of the held calls. Each request
	// is one act, with a record of its decision and one of its outcome.
	pendingRound = 30 * time.Second
	// pendingLook is the time between two looks at the held calls.
	pendingLook = time.Second
)

// DigestOfPending identifies a list of held calls in the parameter unlike.
func DigestOfPending(all []PendingCall) string {
	text, err := json.Marshal(all)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// pending serves GET /admin/v1/approvals, the held calls. With the parameter unlike, the digest
// of a list that the caller has, the answer waits until the calls differ from it, for
// pendingRound at most. The wait also ends when Waits denies it, which is asked every
// pendingLook.
func (o Options) pending(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
	o.guarded("approvals", func(r *http.Request) (any, int) {
		unlike := r.URL.Query().Get("unlike")
		ctx, cancel := context.WithTimeout(r.Context(), pendingRound)
		defer cancel()
		look := time.NewTicker(pendingLook)
		defer look.Stop()
		for {
			all := o.Approver.Pending(r.Context())
			if unlike == "" || DigestOfPending(all) != unlike || !o.Approver.Waits(who) {
				return all, http.StatusOK
			}
			select {
			case <-ctx.Done():
				return all, http.StatusOK
			case <-look.C:
			}
		}
	})(w, r, who)
}
