package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// Trust describes what is withheld of one server.
type Trust struct {
	Server   string         `json:"server"`
	Withheld []pin.Withheld `json:"withheld"`
	Edited   *pin.Edit      `json:"edited,omitempty"` // the server's arguments, which the configuration changed
	Reason   string         `json:"reason,omitempty"` // why the server cannot be used
	// Unreached means that the server did not list its offer, so that this is the last known
	// one.
	Unreached bool `json:"unreached,omitempty"`
}

// TrustList is the answer of GET /admin/v1/trust.
type TrustList struct {
	Servers []Trust `json:"servers"`
}

// TrustLook is the body of POST /admin/v1/trust/look.
type TrustLook struct {
	Server string `json:"server"`
}

// TrustApproval is the body of POST /admin/v1/trust: the items of a server, each with the
// digest of the shown definition.
type TrustApproval struct {
	Server string         `json:"server"`
	Items  []pin.Approval `json:"items"`
}

// Truster holds the functions of the daemon that the paths of trust need.
type Truster struct {
	List    func() []Trust
	Look    func(ctx context.Context, who *principal.Principal, server string) (Trust, error)
	Approve func(who *principal.Principal, server string, items []pin.Approval) error
	// Person refuses a caller below an MCP client, as in Messaging.
	Person func(r *http.Request, who *principal.Principal) error
}

// trust serves /admin/v1/trust: GET lists, POST approves.
func (o Options) trust() handler {
	list := o.guarded("trust", func(*http.Request) (any, int) { return TrustList{Servers: o.Trust.List()}, http.StatusOK })
	approve := o.postedBy("trust.approve", func(r *http.Request, who *principal.Principal, body []byte) (any, int) {
		if err := o.Trust.Person(r, who); err != nil {
			return o.UI.failure(r, err)
		}
		var a TrustApproval
		if err := json.Unmarshal(body, &a); err != nil || a.Server == "" || len(a.Items) == 0 {
			return nil, http.StatusBadRequest
		}
		if err := o.Trust.Approve(who, a.Server, a.Items); err != nil {
			return nil, statusOf(err)
		}
		return map[string]int{"approved": len(a.Items)}, http.StatusOK
	})
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		if r.Method == http.MethodPost {
			approve(w, r, who)
			return
		}
		list(w, r, who)
	}
}

// trustLook lists the offer of a server. It is a POST, because it may start the server.
func (o Options) trustLook() handler {
	return o.posted("trust", func(ctx context.Context, who *principal.Principal, body []byte) (any, int) {
		var l TrustLook
		if err := json.Unmarshal(body, &l); err != nil || l.Server == "" {
			return nil, http.StatusBadRequest
		}
		t, err := o.Trust.Look(ctx, who, l.Server)
		if err != nil {
			return nil, statusOf(err)
		}
		return t, http.StatusOK
	})
}
