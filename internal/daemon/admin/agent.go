package admin

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Agents is the operator's side of messaging (agent.Operator). Each of its methods passes the
// gate as action `admin`, refuses the shell of an agent, and leaves one record, so this package
// does none of that.
type Agents interface {
	Peers(ctx context.Context, by agent.Caller) ([]agent.PeerInfo, error)
	Show(ctx context.Context, by agent.Caller, peer string) (*agent.PeerInfo, error)
	Retire(ctx context.Context, by agent.Caller, peer string) (*agent.PeerInfo, error)
	Send(ctx context.Context, by agent.Caller, d agent.OperatorDraft) (*agent.OperatorSent, error)
	Inbox(ctx context.Context, by agent.Caller, peer string, bodies, ack bool) (*agent.Inbox, error)
	Tail(ctx context.Context, by agent.Caller, peer string, after int64, waitMS int) (*agent.Tailed, error)
	Trace(ctx context.Context, by agent.Caller, messageID string) (*agent.Traced, error)
	Holds(ctx context.Context, by agent.Caller) ([]agent.Message, error)
	Settle(ctx context.Context, by agent.Caller, what, messageID string) ([]mail.Settled, error)
	Pause(ctx context.Context, by agent.Caller, peer string, on bool) (*agent.PeerInfo, error)
	Transfer(ctx context.Context, by agent.Caller, peer, to string) (*agent.PeerInfo, error)
	Fsck(ctx context.Context, by agent.Caller, repair bool) (*agent.Checked, error)
}

// Messaging holds the functions of the daemon that the messaging routes need. A malformed
// request also passes the gate before it is refused, so that every request is recorded.
type Messaging struct {
	Agents Agents // nil: messaging is off, and there are no such paths
	// Above returns the process of a request and all processes above it, in the form of
	// peer.Ancestors. complete is false if not all could be read, and always over TCP: the
	// operator's acts are then refused.
	Above func(*http.Request) (processes []string, complete bool)
	// Person returns agent.ErrAgentShell for a request that may come from below an MCP client,
	// registered or not, and ErrOrphan if a client may have left its process behind.
	Person func(*http.Request) error
	// Holds reports whether the proof of a caller is still valid; nil: always.
	Holds func(*principal.Principal) bool
	// Hook counts the mail of the agent that a client's hook belongs to. It is not an act of
	// the operator; it passes the gate and is recorded there.
	Hook func(ctx context.Context, who *principal.Principal, processes []string) (agent.HookCounts, error)
}

// AgentPeers is the answer of /admin/v1/agent/peers.
type AgentPeers struct {
	Peers []agent.PeerInfo `json:"peers"`
}

// AgentHolds is the answer of GET /admin/v1/agent/hold.
type AgentHolds struct {
	Messages []agent.Message `json:"messages"`
}

// AgentSettled is the answer of POST /admin/v1/agent/hold.
type AgentSettled struct {
	Settled []AgentSettlement `json:"settled"`
}

// AgentSettlement is the outcome for one message.
type AgentSettlement struct {
	MessageID string `json:"message_id"`
	PeerID    string `json:"peer_id"`
	State     string `json:"state"`
	Seq       int64  `json:"seq,omitempty"`
	NewID     string `json:"new_id,omitempty"` // of the message that was sent again
}

// Bodies of POST requests.
type (
	AgentPeer struct {
		Peer string `json:"peer"`
	}
	AgentInbox struct {
		Ack bool `json:"ack"`
	}
	AgentHold struct {
		Do        string `json:"do"` // approve, refuse, requeue or purge
		MessageID string `json:"message_id"`
	}
	AgentPause struct {
		Peer   string `json:"peer"`
		Paused bool   `json:"paused"`
	}
	AgentTransfer struct {
		Peer string `json:"peer"`
		To   string `json:"to"`
	}
	AgentFsck struct {
		Repair bool `json:"repair"`
	}
)

func (o Options) agentPaths() map[string]handler {
	m := o.Messaging
	a := m.Agents
	if a == nil {
		return nil
	}
	return map[string]handler{
		"/admin/v1/agent/peers": o.methods(lookup(m, []string{"peer"}, func(ctx context.Context, by agent.Caller, q url.Values) (any, error) {
			return peers(ctx, a, by, q.Get("peer"))
		}), nil),
		"/admin/v1/agent/retire": o.methods(nil, act(m, func(ctx context.Context, by agent.Caller, in AgentPeer) (any, error) {
			return a.Retire(ctx, by, in.Peer)
		})),
		"/admin/v1/agent/send": o.methods(nil, act(m, func(ctx context.Context, by agent.Caller, in agent.OperatorDraft) (any, error) {
			return a.Send(ctx, by, in)
		})),
		"/admin/v1/agent/inbox": o.methods(lookup(m, []string{"peer", "bodies"}, func(ctx context.Context, by agent.Caller, q url.Values) (any, error) {
			if b := q.Get("bodies"); b != "" && b != "true" {
				return nil, errArgument
			}
			return inbox(a.Inbox(ctx, by, q.Get("peer"), q.Has("bodies"), false))
		}), act(m, func(ctx context.Context, by agent.Caller, in AgentInbox) (any, error) {
			return inbox(a.Inbox(ctx, by, "", true, in.Ack))
		})),
		"/admin/v1/agent/tail": o.tail,
		"/admin/v1/agent/trace": o.methods(lookup(m, []string{"message_id"}, func(ctx context.Context, by agent.Caller, q url.Values) (any, error) {
			return traced(a.Trace(ctx, by, q.Get("message_id")))
		}), nil),
		"/admin/v1/agent/hold": o.methods(lookup(m, nil, func(ctx context.Context, by agent.Caller, _ url.Values) (any, error) {
			held, err := a.Holds(ctx, by)
			return AgentHolds{Messages: list(held)}, err
		}), personal(m, act(m, m.settle))),
		"/admin/v1/agent/pause": o.methods(nil, personal(m, act(m, func(ctx context.Context, by agent.Caller, in AgentPause) (any, error) {
			return a.Pause(ctx, by, in.Peer, in.Paused)
		}))),
		"/admin/v1/agent/transfer": o.methods(nil, act(m, func(ctx context.Context, by agent.Caller, in AgentTransfer) (any, error) {
			return a.Transfer(ctx, by, in.Peer, in.To)
		})),
		"/admin/v1/agent/fsck": o.methods(lookup(m, nil, func(ctx context.Context, by agent.Caller, _ url.Values) (any, error) {
			return checked(a.Fsck(ctx, by, false))
		}), act(m, func(ctx context.Context, by agent.Caller, in AgentFsck) (any, error) {
			return checked(a.Fsck(ctx, by, in.Repair))
		})),
		"/agent/v1/hook": o.methods(nil, m.hook),
	}
}

func peers(ctx context.Context, a Agents, by agent.Caller, one string) (any, error) {
	if one == "" {
		all, err := a.Peers(ctx, by)
		return AgentPeers{Peers: list(all)}, err
	}
	p, err := a.Show(ctx, by, one)
	if err != nil {
		return nil, err
	}
	return AgentPeers{Peers: []agent.PeerInfo{*p}}, nil
}

// list replaces nil, so that the JSON is never null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func inbox(in *agent.Inbox, err error) (any, error) {
	if err == nil {
		in.Messages = list(in.Messages)
	}
	return in, err
}

func traced(t *agent.Traced, err error) (any, error) {
	if err == nil {
		t.Messages, t.Changes, t.Audit = list(t.Messages), list(t.Changes), list(t.Audit)
	}
	return t, err
}

func checked(c *agent.Checked, err error) (any, error) {
	if err == nil {
		c.Problems = list(c.Problems)
		if c.States == nil {
			c.States = map[string]int64{}
		}
	}
	return c, err
}

func (m Messaging) settle(ctx context.Context, by agent.Caller, in AgentHold) (any, error) {
	if !slices.Contains([]string{agent.HoldApprove, agent.HoldRefuse, agent.HoldRequeue, agent.HoldPurge}, in.Do) || in.MessageID == "" {
		return nil, errArgument
	}
	done, err := m.Agents.Settle(ctx, by, in.Do, in.MessageID)
	out := AgentSettled{Settled: []AgentSettlement{}}
	for _, s := range done {
		out.Settled = append(out.Settled, AgentSettlement{MessageID: s.MessageID, PeerID: s.PeerID, State: s.State, Seq: s.Seq, NewID: s.NewID})
	}
	return out, err
}

// hook returns only counts. The gate decides whether the caller may read its mailbox; a caller
// without a peer has no mail.
func (m Messaging) hook(r *http.Request, who *principal.Principal, _ []byte) (any, error) {
	processes, _ := m.Above(r) // an incomplete chain is sufficient here
	return m.Hook(r.Context(), who, processes)
}
