package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/console"
	"github.com/doorward/doorward/internal/daemon/passkey"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The files of what outlives the daemon: the grants, and the last number of a held call.
const (
	grantsFile = "approvals.json"
	numberFile = "approvals.last"
)

// openApprovals makes the queue of held calls, with the grants of earlier runs.
func (d *Daemon) openApprovals() (*relay.Hold, error) {
	grants, number := filepath.Join(d.o.StateDir, grantsFile), filepath.Join(d.o.StateDir, numberFile)
	var saved []approval.Grant
	var last uint64
	if err := errors.Join(readKept(grants, &saved), readKept(number, &last)); err != nil {
		return nil, err
	}
	c := d.o.Config.Approvals
	o := approval.Options{Last: last, Give: func(n uint64) error { return durable.ReplaceLocked(number, strconv.AppendUint(nil, n, 10)) },
		Expire: c.Expire, Record: d.audit.Append, Save: func(all []approval.Grant) error { return saveGrants(grants, all) }}
	var err error
	if o.Notify, err = openNotices(d, c.Notify); err != nil {
		return nil, err
	}
	d.approvals = approval.New(o, saved)
	d.onClose(d.approvals.Close)
	return &relay.Hold{Queue: d.approvals, Wait: waitOf(c), Page: d.decisionsPage}, nil
}

// readKept reads a file of approvals into out. A file that does not exist changes nothing.
func readKept(path string, out any) error {
	b, err := durable.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return fmt.Errorf("the approvals in %s cannot be read, perhaps because a newer version wrote them: %w; move the file away, and approve again", path, err)
	}
	return nil
}

func saveGrants(path string, all []approval.Grant) error {
	b, err := json.Marshal(all)
	if err == nil {
		err = durable.ReplaceAt(path, b)
	}
	if err != nil {
		return fmt.Errorf("writing what was approved: %w", err)
	}
	return nil
}

// How long a held call waits by default. The usual time is shorter than the 60 s after which
// clients of the TypeScript SDK give up. It is longer for clients that were measured to wait
// for at least 300 s (docs/approvals.md). The client claims its name, which decides nothing
// else.
const (
	waitUsual   = 50 * time.Second
	waitPatient = 270 * time.Second
)

func patient() []string {
	return []string{"claude-code", "codex-mcp-client", "gemini-cli-mcp-client", "opencode"}
}

func waitOf(c config.Approvals) func(client string) time.Duration {
	given, fixed := c.WaitTime()
	return func(client string) time.Duration {
		if fixed {
			return given
		}
		if slices.Contains(patient(), client) {
			return waitPatient
		}
		return waitUsual
	}
}

// decisionsPage returns the URL of the console page where held calls are decided.
func (d *Daemon) decisionsPage() string {
	if l := (consoleHost{d}).listener(); l != nil {
		return consoleURL(l) + "decisions"
	}
	return ""
}

// passkeysFile is the file of the operator's passkeys.
const passkeysFile = "passkeys.json"

func openPasskeys(dir string, record func(*audit.Record) (uint64, error)) (*passkey.Book, error) {
	return passkey.Open(filepath.Join(dir, passkeysFile), record, time.Now)
}

// needsPasskey reports whether an approval needs a passkey.
func needsPasskey(d *Daemon) bool { return d.o.Config.Approvals.Presence == config.PresencePasskey }

func (a api) passkeys() []admin.Passkey {
	out := []admin.Passkey{}
	for _, k := range a.d.passkeys.Keys() {
		v := admin.Passkey{ID: k.ID, Name: k.Name, Added: stamp(k.Added)}
		if !k.Used.IsZero() {
			v.Used = stamp(k.Used)
		}
		out = append(out, v)
	}
	return out
}

// heldActs is the set of calls and messages that wait for the operator.
type heldActs struct{ d *Daemon }

// settle decides question n, about a call or a message. If passkeys are required, an approval
// must be signed by one and name the preview.
func (h heldActs) settle(ctx context.Context, who *principal.Principal, n uint64, preview string, v approval.Verdict) error {
	if v.Approve && needsPasskey(h.d) && (v.Passkey == "" || preview == "") {
		consoleHost(h).event(who, "approve.refused", "without a passkey")
		return admin.ErrPasskey
	}
	err := h.d.approvals.Settle(who, n, preview, v)
	if errors.Is(err, approval.ErrSettled) {
		if is, failed := heldMail(h).settle(ctx, who, n, preview, v); is || failed != nil {
			return failed
		}
	}
	return err
}

// approver returns the functions that the admin API needs for approvals.
func (a api) approver() admin.Approver {
	return admin.Approver{Enter: a.enterApprove, Operator: a.mustBeOperator, Pending: a.pending, Waits: a.waits, Grants: a.grants,
		Passkeys: a.passkeys,
		Settle: func(ctx context.Context, who *principal.Principal, n uint64, s admin.Settlement) error {
			return heldActs(a).settle(ctx, who, n, s.Preview, approval.Verdict{Approve: s.Decision == "approve", For: s.For, Why: s.Why})
		},
		Revoke: func(who *principal.Principal, id string) error { return a.d.approvals.Revoke(who, id) }}
}

// enterApprove passes an act of the operator through the gate as action approve. It has to come
// from this machine.
func (a api) enterApprove(r *http.Request, who *principal.Principal, what string) (leave func(), err error) {
	act := gate.Act{Who: who, Action: policy.ActionApprove, Name: what, Kind: gate.Administration}
	if !overLocal(r) {
		return nil, a.d.gate.Refuse(act, "default.admin-local", gate.CodeDenied, 0)
	}
	pass, err := a.d.gate.Enter(act)
	if err != nil {
		return nil, err
	}
	return func() { pass.Leave("ok", 0) }, nil
}

// waits reports whether a request of a caller for the held calls may wait on: its proof and its
// right hold, and the daemon is not stopping.
func (a api) waits(who *principal.Principal) bool {
	may := a.d.gate.Allows(policy.Request{Who: who, Action: policy.ActionApprove}).Allow
	return may && a.d.callers.standing(who) && !a.d.listeners.stopping.Load()
}

// mustBeOperator accepts, on the Unix socket, only the daemon's own user at a terminal that
// is not below an agent. Over TCP, policy has already checked the scope approve.
func (a api) mustBeOperator(r *http.Request, who *principal.Principal) error {
	if !overUnix(r) {
		return nil // policy has checked the scope
	}
	_, err := (consoleHost(a)).operator(r, who)
	if errors.Is(err, deliver.ErrStore) {
		consoleHost(a).event(who, "approve.refused", "the registered agents cannot be looked up")
		return err
	}
	if err != nil {
		consoleHost(a).event(who, "approve.refused", refusedShell)
		return fmt.Errorf("%w: %w", agent.ErrAgentShell, err)
	}
	if !peer.Terminal(listen.From(r.Context()).Peer) {
		consoleHost(a).event(who, "approve.refused", "without a terminal of the operator")
		return admin.ErrNoTerminal
	}
	return nil
}

// waiting returns the calls and messages that wait for the operator, by number, and in the end
// those without one (0). Without the
// store, messages are missing and cannot be decided.
func (h heldActs) waiting(ctx context.Context) []approval.Question {
	mails, err := heldMail(h).all(ctx)
	if err != nil {
		h.d.log.Warn("held messages could not be listed", "err", err)
	}
	all := append(mails, h.d.approvals.Pending()...)
	slices.SortFunc(all, func(x, y approval.Question) int { return cmp.Compare(x.N-1, y.N-1) })
	return all
}

func (a api) pending(ctx context.Context) []admin.PendingCall {
	out := []admin.PendingCall{}
	for _, q := range heldActs(a).waiting(ctx) {
		c := admin.PendingCall{N: q.N, Time: stamp(q.Time), Client: q.Client, Principal: q.Principal, Server: q.Server, Tool: q.Tool, Action: q.Action,
			Args: json.RawMessage(q.Args), Rest: json.RawMessage(q.Rest), Expires: stamp(q.Expires), Rule: q.Rule, Reason: q.Reason, Preview: q.Preview, Waiting: q.Waiting, Notes: q.Notes}
		if q.Args == "" {
			c.Args = json.RawMessage("{}")
		}
		out = append(out, c)
	}
	return out
}

func (a api) grants() []admin.Grant {
	out := []admin.Grant{}
	for _, g := range a.d.approvals.Grants() {
		v := admin.Grant{ID: g.ID, Action: g.Action, Tool: g.Tool, Server: g.Server, Principal: g.Principal, For: g.For, Granted: stamp(g.Granted)}
		if !g.Expires.IsZero() {
			v.Expires = stamp(g.Expires)
		}
		out = append(out, v)
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Pending implements console.Approvals.
func (h heldActs) Pending(ctx context.Context, _ console.Caller) ([]console.Held, error) {
	var out []console.Held
	for _, q := range h.waiting(ctx) {
		out = append(out, console.Held{N: q.N, Time: q.Time, Expires: q.Expires, Client: q.Client, Principal: q.Principal,
			Server: q.Server, Tool: objectOf(q), Args: q.Args, Rest: q.Rest, Rule: q.Rule, Reason: q.Reason, Notes: q.Notes, Preview: q.Preview, Message: q.Message})
	}
	return out, nil
}

// objectOf returns the tool as one word, preceded by the action if that is not the call of a tool.
func objectOf(q approval.Question) string {
	if q.Action == policy.ActionCall {
		return plaintext.Word(q.Tool)
	}
	return q.Action + " " + plaintext.Word(q.Tool)
}

// Settle implements console.Approvals. The console's session belongs to the operator.
func (h heldActs) Settle(ctx context.Context, by console.Caller, n uint64, v console.Verdict) error {
	act := gate.Act{Who: by.Who, Action: policy.ActionApprove, Name: "approvals/settle", Kind: gate.Administration, Source: sourceConsole}
	pass, err := h.d.gate.Enter(act)
	if err != nil {
		return err
	}
	defer pass.Leave("ok", 0)
	err = h.settle(ctx, by.Who, n, v.Preview, approval.Verdict{Approve: v.Decision == "approve", For: v.For, Why: v.Why, Passkey: v.Passkey})
	switch {
	case errors.Is(err, approval.ErrSettled):
		return admin.ErrStale
	case errors.Is(err, approval.ErrVerdict):
		return console.ErrVerdict
	}
	return err
}
