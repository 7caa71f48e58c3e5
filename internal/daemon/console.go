package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/console"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// sourceConsole is the source of the records of the console.
const sourceConsole = "ui"

// consoleHost connects the web console with the daemon: it passes the console's acts through
// the gate and provides the data of its pages.
type consoleHost struct{ d *Daemon }

// ahead serves the requests that need no principal: those of the console, whose cookie
// identifies its caller, and those of callers.ahead.
func (h consoleHost) ahead(w http.ResponseWriter, r *http.Request, path string) bool {
	if !strings.HasPrefix(path, console.Prefix) {
		return h.d.callers.ahead(w, r, path)
	}
	v, ok := visitOf(r)
	if !ok || listen.From(r.Context()).Listener.AuthEnforced && !h.d.console.Expected(r, v) {
		return h.d.callers.ahead(w, r, path)
	}
	h.d.console.Serve(w, r, v)
	return true
}

// visitOf returns the facts about a request to the console. ok is false where the console is
// not served: on the Unix socket, on a listener that is not loopback, for a client elsewhere of a
// trusted proxy, and for another user or a server of the daemon, which can connect to a listener
// that enforces a token.
func visitOf(r *http.Request) (v console.Visit, ok bool) {
	o := listen.From(r.Context())
	if o == nil || !o.Listener.Loopback || !o.IsLocal(r.Header) || o.Owner == listen.OwnerOther {
		return v, false
	}
	v = console.Visit{Listener: o.Listener.Addr(), Scheme: "http"}
	if o.Listener.TLS {
		v.Scheme = "https"
	}
	if h, err := o.Holder(); err == nil {
		if h.Inside {
			return v, false
		}
		program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", h.PID)) // empty where it cannot be read
		v.Program = strings.TrimSuffix(program, " (deleted)")         // the file was replaced while the browser runs
	}
	return v, true
}

// enter passes an act of the console through the gate.
func (h consoleHost) enter(ctx context.Context, by console.Caller, what string) (leave func(), err error) {
	act := gate.Act{Who: by.Who, Action: policy.ActionAdmin, Name: what, Kind: gate.Administration, Source: sourceConsole}
	if err := h.stillPerson(ctx, by); err != nil {
		h.d.gate.Refuse(act, "ui.agent-shell", gate.CodeDenied, 0)
		return nil, err
	}
	pass, err := h.d.gate.Enter(act)
	if err != nil {
		return nil, err
	}
	return func() { pass.Leave("ok", 0) }, nil
}

func (h consoleHost) allows(ctx context.Context, by console.Caller, what string) bool {
	return h.stillPerson(ctx, by) == nil &&
		h.d.gate.Allows(policy.Request{Who: by.Who, Action: policy.ActionAdmin, Name: what}).Allow
}

// stillPerson refuses a session that began below a process that is an agent or MCP client now.
// A command that the operator gives in the same shell, such as a held `doorward call`, is no
// reason.
func (h consoleHost) stillPerson(ctx context.Context, by console.Caller) error {
	if err := h.d.shell(ctx, by.Processes, true); err != nil {
		return err
	}
	if h.d.callers.clients.above(by.Processes, false) {
		return agent.ErrAgentShell
	}
	return nil
}

// mayBegin refuses to begin a session for a process that is an agent or MCP client now, or is
// below one, and for one that cannot be found although the system can tell: a program can hide
// its connections. A system that cannot determine processes at all refuses no sign-in. An agent's
// process that the session manager has adopted is not recognised: browsers are adopted too.
func (h consoleHost) mayBegin(r *http.Request) error {
	holder, err := listen.From(r.Context()).Holder()
	if errors.Is(err, peer.ErrUnavailable) {
		return nil
	}
	if errors.Is(err, peer.ErrNotFound) {
		return fmt.Errorf("%w: %w", console.ErrGone, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", console.ErrUnknownProgram, err)
	}
	processes, err := peer.AncestorsOf(holder)
	if err != nil {
		return fmt.Errorf("%w: %w", console.ErrUnknownProgram, err)
	}
	return h.stillPerson(r.Context(), console.Caller{Processes: processes})
}

func (h consoleHost) event(who *principal.Principal, action, reason string) {
	h.d.audit.Later(&audit.Record{Kind: audit.Event, Source: sourceConsole, Who: who, Action: action, Reason: reason})
}

func (h consoleHost) agents() admin.Agents {
	if m := h.d.messaging.Load(); m != nil {
		return m.server.Operator()
	}
	return nil
}

// stopGrace is how long a started agent may take to end.
const stopGrace = 5 * time.Second

func (h consoleHost) stopAgent(spawn string) error {
	m := h.d.agents.manager.Load()
	if m == nil || m.Find(spawn) == nil {
		return admin.ErrNotFound
	}
	return m.Stop(spawn, stopGrace)
}

// consoleServers implements the console's functions for servers.
type consoleServers struct{ d *Daemon }

func (s consoleServers) Definitions(server string) map[string][]byte {
	return s.d.definitions.pins.Definitions(server)
}

func (s consoleServers) Stderr(server string) []string { return s.d.stderr.of(server) }

func (s consoleServers) Restart(server string) (ended int, err error) {
	n, found := s.d.relay.RestartServer(server)
	if !found {
		return 0, admin.ErrNotFound
	}
	return n, nil
}

// limitSettings returns the limits in force by their keys in the configuration.
func limitSettings(c *config.Config) []console.Setting {
	l := c.Limits
	return []console.Setting{
		{Key: "limits.body_bytes", Value: fmt.Sprint(l.BodyBytes)}, {Key: "limits.sessions", Value: fmt.Sprint(l.Sessions)},
		{Key: "limits.sessions_per_principal", Value: fmt.Sprint(l.SessionsPerPrincipal)}, {Key: "limits.children", Value: fmt.Sprint(l.Children)},
		{Key: "limits.calls_per_principal", Value: fmt.Sprint(l.CallsPerPrincipal)}, {Key: "limits.calls_per_second", Value: fmt.Sprint(l.CallsPerSecond)},
	}
}

// operator returns the caller for the daemon's own user on the Unix socket. It refuses any
// other user and a process below an agent.
func (h consoleHost) operator(r *http.Request, who *principal.Principal) (console.Caller, error) {
	if !overUnix(r) || !h.d.owner(who) {
		return console.Caller{}, &gate.Refusal{Code: gate.CodeDenied, Rule: "ui.operator", Err: errors.New("not the operator on the socket")}
	}
	processes, err := api(h).person(r)
	if err != nil {
		return console.Caller{}, err
	}
	// It has no witness, because the command ends before its session does.
	return console.Caller{Who: principal.New(who.Name(), who.Facts()...).WithLocal(), Processes: processes}, nil
}

// person refuses a request on the Unix socket from a process that may be below a registered
// agent or another MCP client, or that one of them left behind. Otherwise an agent could
// approve its own requests.
func (a api) person(r *http.Request) (processes []string, err error) {
	processes, complete := above(r)
	if err := a.d.shell(r.Context(), processes, complete); err != nil {
		return nil, err
	}
	if a.d.callers.clients.above(processes, true) {
		return nil, agent.ErrAgentShell
	}
	if a.d.callers.clients.orphans.leftBehind(processes) {
		return nil, admin.ErrOrphan
	}
	return processes, nil
}

// mustBePerson applies person to requests on the Unix socket. Over TCP policy has required a
// token.
func (a api) mustBePerson(r *http.Request) error {
	if !overUnix(r) {
		return nil
	}
	_, err := a.person(r)
	return err
}

// mayTrust is mustBePerson for approving the offer of a server; a refusal is recorded.
func (a api) mayTrust(r *http.Request, who *principal.Principal) error {
	err := a.mustBePerson(r)
	if errors.Is(err, agent.ErrAgentShell) {
		consoleHost(a).event(who, "trust.refused", refusedShell)
	}
	return err
}

// refusedShell is the reason in the record of an operator's act that was refused.
const refusedShell = "a process above the caller is an MCP client, or may be an orphan of one"

// openUI serves POST /admin/v1/ui.
func (a api) openUI(r *http.Request, who *principal.Principal) (admin.UIOpened, error) {
	by, err := consoleHost(a).operator(r, who)
	if err != nil {
		consoleHost(a).event(who, "ui.refused", "not the operator, or a process above the caller is an agent")
		return admin.UIOpened{}, err
	}
	l := consoleHost(a).listener()
	if l == nil {
		return admin.UIOpened{}, admin.ErrNoConsole
	}
	code, until := a.d.console.Issue(by, l.Addr())
	return admin.UIOpened{URL: consoleURL(l) + "#" + code, Expires: until.UTC().Format(time.RFC3339)}, nil
}

func (a api) signOutUI(r *http.Request, who *principal.Principal) (admin.UISignedOut, error) {
	if _, err := (consoleHost(a)).operator(r, who); err != nil {
		return admin.UISignedOut{}, err
	}
	return admin.UISignedOut{Ended: a.d.console.SignOut()}, nil
}

// restartServer and stopStarted serve the paths that end processes. They are for the
// operator, and refused to the shells of agents.
func (a api) restartServer(r *http.Request, server string) (ended int, err error) {
	processes, complete := above(r)
	if err := a.d.shell(r.Context(), processes, complete); err != nil {
		return 0, err
	}
	return consoleServers(a).Restart(server)
}

func (a api) stopStarted(r *http.Request, spawn string) error {
	processes, complete := above(r)
	if err := a.d.shell(r.Context(), processes, complete); err != nil {
		return err
	}
	return consoleHost(a).stopAgent(spawn)
}

// listener returns the first loopback listener; nil: there is none.
func (h consoleHost) listener() *listen.Listener {
	h.d.listeners.mu.Lock()
	defer h.d.listeners.mu.Unlock()
	for _, l := range h.d.listeners.open {
		if l.Loopback {
			return l
		}
	}
	return nil
}

// consoleURL returns the console's address on a listener. It uses the name localhost, which
// passkeys need, if that name leads to the listener.
func consoleURL(l *listen.Listener) string {
	scheme := "http"
	if l.TLS {
		scheme = "https"
	}
	at, err := netip.ParseAddrPort(l.Addr())
	if err != nil || at.Addr() == netip.IPv6Loopback() || at.Addr() == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		return fmt.Sprintf("%s://localhost:%d%s", scheme, at.Port(), console.Prefix)
	}
	return scheme + "://" + l.Addr() + console.Prefix
}
