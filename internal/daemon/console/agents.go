package console

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
)

func query(name, value string) string { return url.Values{name: {value}}.Encode() }

// agentsData is the data of the page Agents.
type agentsData struct {
	Off   bool
	Peers []agent.PeerInfo
	More  int // peers that are not shown
	Kin   []kin
	Lanes []string
	Steps []step
}

// step is one state change of a message, in the lanes of its peers.
type step struct {
	At                      time.Time
	Message, Change, Reason string
	Cells                   []string // one for each lane: from, to, or empty
	From, To                string
}

const (
	mostPeers = 200
	mostLanes = 6
	mostSteps = 60
)

// agents shows the registered agents and the messages between them.
func (c *Console) agents(q *request) (page, error) {
	a := c.o.Agents()
	if a == nil {
		return page{View: "agents", Title: "Agents", Data: agentsData{Off: true}}, nil
	}
	all, err := a.Peers(q.ctx, q.mailCaller())
	if err != nil {
		return page{}, err
	}
	d := agentsData{Peers: all[:min(len(all), mostPeers)]}
	d.More = len(all) - len(d.Peers)
	d.Kin = families(d.Peers)
	changes, err := recent(q, a)
	if err != nil {
		return page{}, err
	}
	d.Lanes, d.Steps = lanes(changes)
	return page{View: "agents", Title: "Agents", Live: true, Part: Prefix + "agents?part=1", Data: d}, nil
}

// recent returns the last state changes, the newest first.
func recent(q *request, a admin.Agents) ([]mail.Change, error) {
	end, err := a.Tail(q.ctx, q.mailCaller(), "", -1, 0)
	if err != nil {
		return nil, err
	}
	last, err := a.Tail(q.ctx, q.mailCaller(), "", max(0, end.After-mostSteps), 0)
	if err != nil {
		return nil, err
	}
	slices.Reverse(last.Changes)
	return last.Changes, nil
}

// lanes assigns changes to lanes, one for each of the first mostLanes peers.
func lanes(changes []mail.Change) (names []string, steps []step) {
	for _, c := range changes {
		for _, name := range []string{c.From, c.To} {
			if name != "" && len(names) < mostLanes && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, c := range changes {
		s := step{At: time.UnixMilli(c.At), Message: c.MessageID, Reason: c.Reason, From: c.From, To: c.To}
		if s.Change = c.After; c.Before != "" {
			s.Change = c.Before + " → " + c.After
		}
		for _, name := range names {
			cell := ""
			switch name {
			case c.From:
				cell = "from"
			case c.To:
				cell = "to"
			}
			s.Cells = append(s.Cells, cell)
		}
		steps = append(steps, s)
	}
	return names, steps
}

// peerData is the data of the page of one agent.
type peerData struct {
	agent.PeerInfo
	Inbox  agent.Inbox
	More   int // messages that are not shown
	Bodies bool
}

// peer shows one agent and the messages that wait for it. Showing their bodies is a separate
// act.
func (c *Console) peer(q *request) (page, error) {
	a := c.o.Agents()
	if a == nil {
		return page{}, errAway
	}
	p, err := a.Show(q.ctx, q.mailCaller(), q.in.Get("peer"))
	if err != nil {
		return page{}, err
	}
	d := peerData{PeerInfo: *p, Bodies: q.in.Get("bodies") != ""}
	in, err := a.Inbox(q.ctx, q.mailCaller(), p.PeerID, d.Bodies, false)
	if err != nil {
		return page{}, err
	}
	d.Inbox = *in
	d.More = len(d.Inbox.Messages) - min(len(d.Inbox.Messages), mostHeld)
	d.Inbox.Messages = d.Inbox.Messages[:len(d.Inbox.Messages)-d.More]
	return page{View: "peer", Title: "Agent " + p.Name, Data: d}, nil
}

// message shows the states of one message.
func (c *Console) message(q *request) (page, error) {
	a := c.o.Agents()
	if a == nil {
		return page{}, errAway
	}
	t, err := a.Trace(q.ctx, q.mailCaller(), q.in.Get("id"))
	if err != nil {
		return page{}, err
	}
	return page{View: "message", Title: "Message " + q.in.Get("id"), Data: t}, nil
}

// send sends a message with the operator's authority.
func (f acts) send(q *request) (said, next string, err error) {
	a := f.c.o.Agents()
	if a == nil {
		return "", "", errAway
	}
	sent, err := a.Send(q.ctx, q.mailCaller(), agent.OperatorDraft{To: q.in.Get("to"), Subject: q.in.Get("subject"), Body: q.in.Get("body"), ReplyTo: q.in.Get("reply_to")})
	if err != nil {
		return "", "", err
	}
	return "Sent to " + sent.To + ": " + sent.State, "agents/one?" + query("peer", sent.PeerID), nil
}

// pause starts or ends holding all new messages for an agent.
func (f acts) pause(q *request) (said, next string, err error) {
	a := f.c.o.Agents()
	if a == nil {
		return "", "", errAway
	}
	p, err := a.Pause(q.ctx, q.mailCaller(), q.in.Get("peer"), q.in.Get("paused") == "1")
	if err != nil {
		return "", "", err
	}
	said = p.Name + ": new messages to it are held."
	if !p.Paused {
		said = fmt.Sprintf("%s is no longer paused, %d messages are held for it.", p.Name, p.Held)
	}
	return said, "agents/one?" + query("peer", p.PeerID), nil
}

// stopAgent ends an agent that Doorward started.
func (f acts) stopAgent(q *request) (said, next string, err error) {
	if err := f.c.o.StopAgent(q.in.Get("spawn")); err != nil {
		return "", "", err
	}
	return "The agent is being ended.", "agents", nil
}
