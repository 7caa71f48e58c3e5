package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// PendingCall is one call or message that waits for the operator. Time and Expires are RFC
// 3339, Args is the JSON object of the arguments.
type PendingCall struct {
	N         uint64          `json:"n"`
	Time      string          `json:"time"`
	Client    string          `json:"client"`
	Principal string          `json:"principal"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Action    string          `json:"action"`
	Args      json.RawMessage `json:"args"`
	Rest      json.RawMessage `json:"rest,omitempty"` // what the server gets beside the arguments
	Expires   string          `json:"expires"`
	Rule      string          `json:"rule"`
	Reason    string          `json:"reason"`
	Preview   string          `json:"preview"` // digest of the shown content
	Waiting   int             `json:"waiting"` // number of callers that wait for it
	Notes     []string        `json:"notes"`
}

// Settlement is the body of POST /admin/v1/approvals/{n}. Decision is approve or deny. For, of
// an approval, is once, session, 1h or always. Why, of a denial, is told to the caller. Preview
// is the digest of the content that was shown to the operator; empty: not compared.
type Settlement struct {
	Decision string `json:"decision"`
	For      string `json:"for,omitempty"`
	Why      string `json:"why,omitempty"`
	Preview  string `json:"preview,omitempty"`
}

// Grant is an approval for more than one call. Granted and Expires are RFC 3339; empty Expires:
// it does not end.
type Grant struct {
	ID        string `json:"id"`
	Action    string `json:"action"`
	Tool      string `json:"tool"`
	Server    string `json:"server"`
	Principal string `json:"principal"`
	For       string `json:"for"`
	Granted   string `json:"granted"`
	Expires   string `json:"expires"`
}

// Revocation is the body of POST /admin/v1/grants.
type Revocation struct {
	ID string `json:"id"`
}

// Passkey is one registered passkey of the operator. Added and Used are RFC 3339; empty Used:
// never used.
type Passkey struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Added string `json:"added"`
	Used  string `json:"used"`
}

// ErrPasskey refuses an approval without a passkey, which only the console can ask for. Its
// code is that of package mail.
var ErrPasskey = errors.New("an approval needs a passkey")

// ErrNoTerminal refuses an operator without a controlling terminal.
var ErrNoTerminal = errors.New("the caller is not in a terminal of the operator")

// codeNoTerminal is the code of ErrNoTerminal.
const codeNoTerminal = "NO_TERMINAL"

// Approver holds the functions of the daemon that the paths of approvals need. Enter passes the
// gate as action approve. Operator refuses any caller other than the operator.
type Approver struct {
	Enter    func(r *http.Request, who *principal.Principal, what string) (leave func(), err error)
	Operator func(r *http.Request, who *principal.Principal) error
	Pending  func(ctx context.Context) []PendingCall
	Waits    func(who *principal.Principal) bool // whether a request of the caller for Pending may wait on
	Settle   func(ctx context.Context, who *principal.Principal, n uint64, s Settlement) error
	Grants   func() []Grant
	Passkeys func() []Passkey
	Revoke   func(who *principal.Principal, id string) error
}

const pathApprovals = "/admin/v1/approvals"

// approvalPaths returns the paths of the lists and of the decisions. The path of a decision
// ends with the number of the call.
func (o Options) approvalPaths() map[string]handler {
	if o.Approver.Enter == nil {
		return nil
	}
	o.Enter = o.Approver.Enter
	return map[string]handler{
		pathApprovals: o.pending,
		pathApprovals + "/": o.operated("approvals/settle", func(r *http.Request, who *principal.Principal, body []byte) error {
			n, err := strconv.ParseUint(strings.TrimPrefix(r.URL.Path, pathApprovals+"/"), 10, 64)
			var s Settlement
			if err != nil || json.Unmarshal(body, &s) != nil || s.Decision != "approve" && s.Decision != "deny" {
				return errArgument
			}
			return o.Approver.Settle(r.Context(), who, n, s)
		}),
		"/admin/v1/grants":   o.grantPath(),
		"/admin/v1/passkeys": o.guarded("passkeys", func(*http.Request) (any, int) { return o.Approver.Passkeys(), http.StatusOK }),
	}
}

func (o Options) grantPath() handler {
	list := o.guarded("grants", func(*http.Request) (any, int) { return o.Approver.Grants(), http.StatusOK })
	revoke := o.operated("grants/revoke", func(_ *http.Request, who *principal.Principal, body []byte) error {
		var in Revocation
		if json.Unmarshal(body, &in) != nil || in.ID == "" {
			return errArgument
		}
		return o.Approver.Revoke(who, in.ID)
	})
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		if r.Method == http.MethodPost {
			revoke(w, r, who)
			return
		}
		list(w, r, who)
	}
}

// grantOf returns the id of a grant that may let a held call through; empty: none.
func (o Options) grantOf(q policy.Request) string {
	for _, g := range o.Approver.Grants() {
		object := g.Server == q.Server && g.Tool == q.Name || q.Server == "" // an act of messaging names no object
		if g.Action == q.Action && object && g.Principal == q.Who.Name() {
			return g.ID
		}
	}
	return ""
}

// operated returns the handler of a POST that only the operator may send.
func (o Options) operated(what string, f func(*http.Request, *principal.Principal, []byte) error) handler {
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		o.posted(what, func(_ context.Context, _ *principal.Principal, body []byte) (any, int) {
			err := o.Approver.Operator(r, who)
			if err == nil {
				err = f(r, who, body)
			}
			return o.settled(r, err)
		})(w, r, who)
	}
}

func (o Options) settled(r *http.Request, err error) (any, int) {
	switch {
	case err == nil:
		return struct{}{}, http.StatusOK
	case errors.Is(err, errArgument), errors.Is(err, approval.ErrVerdict):
		return nil, http.StatusBadRequest
	case errors.Is(err, approval.ErrSettled):
		return nil, http.StatusNotFound
	case errors.Is(err, ErrPasskey):
		return Failure{Error: http.StatusText(http.StatusForbidden), Code: mail.PasskeyRequired}, http.StatusForbidden
	case errors.Is(err, ErrNoTerminal):
		return Failure{Error: http.StatusText(http.StatusForbidden), Code: codeNoTerminal}, http.StatusForbidden
	case errors.Is(err, agent.ErrAgentShell):
		return o.UI.failure(r, err)
	}
	return nil, http.StatusServiceUnavailable
}
