package relay

import "github.com/doorward/doorward/internal/front"

// Status is what `doorward status` shows of one server.
type Status struct {
	Name, Kind, State, Era, Reason string
	Instances                      int
}

// Status lists the configured servers.
func (r *Relay) Status() []Status {
	var out []Status
	for _, b := range r.table.Load().sorted {
		s := Status{Name: b.Name, Kind: b.Kind, State: "idle", Era: b.era(), Instances: b.instances()}
		if s.Instances > 0 {
			s.State = "connected"
		}
		if b.Refused != "" {
			s.State, s.Reason = "refused", b.Refused
		}
		out = append(out, s)
	}
	return out
}

// era is what has been learnt of the server's protocol.
func (b *backend) era() string {
	switch spoken := b.spoken.Load(); spoken {
	case eraBit(front.Legacy):
		return "legacy"
	case eraBit(front.Modern):
		return "modern"
	case eraBit(front.Legacy) | eraBit(front.Modern):
		return "both"
	}
	return "unknown"
}
