package agent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
)

// A record of an act holds ids, numbers, names, fixed words, and a keyed digest of the
// body, so that short bodies cannot be guessed. It never holds a text of a peer.

func field(name, value string) audit.Field { return audit.Field{Name: name, Value: value} }

func number(name string, n int64) audit.Field { return field(name, strconv.FormatInt(n, 10)) }

func peerFields(p mail.Peer) []audit.Field {
	if p.ID == "" {
		return nil
	}
	return []audit.Field{field("peer", p.ID), number("epoch", p.Epoch)}
}

// idsInField is how many ids a field holds: a field is cut at audit.MaxText bytes.
const idsInField = audit.MaxText / (idLength + 1)

// idFields returns ids in as many fields as they need: name, name_2, name_3.
func idFields(name string, ids []string) []audit.Field {
	var out []audit.Field
	for i := 0; i < len(ids); i += idsInField {
		n := name
		if i > 0 {
			n += "_" + strconv.Itoa(i/idsInField+1)
		}
		out = append(out, field(n, strings.Join(ids[i:min(i+idsInField, len(ids))], ",")))
	}
	return out
}

func inboxFields(v *mail.Batch) []audit.Field {
	var ids []string
	var size int64
	for i := range v.Messages {
		ids = append(ids, v.Messages[i].ID)
		size += int64(len(v.Messages[i].Body))
	}
	fields := append(peerFields(v.Peer), number("confirmed", int64(v.Acked)), number("given", int64(len(ids))))
	fields = append(fields, idFields("messages", ids)...)
	if len(v.Counts.Notices) > 0 {
		fields = append(fields, number("notices", int64(len(v.Counts.Notices))))
	}
	return append(fields, number("size", size))
}

// Upkeep returns the record of what the book does without a caller, for mail.Options.
func Upkeep(u *mail.Upkeep) any {
	r := &audit.Record{Kind: audit.Event, Source: source, Action: "agent.upkeep." + u.What, Resource: ServerName, Count: u.Rows}
	if u.Peer != "" {
		r.Detail = append(r.Detail, field("peer", u.Peer))
	}
	for _, state := range slices.Sorted(maps.Keys(u.States)) {
		r.Detail = append(r.Detail, number(state, int64(u.States[state])))
	}
	r.Detail = append(r.Detail, idFields("sessions", u.Ended)...)
	return r
}

// digest returns the keyed digest of a body.
func (s *trail) digest(body string) string {
	h := hmac.New(sha256.New, s.o.AuditKey)
	h.Write([]byte(body))
	return hex.EncodeToString(h.Sum(nil))
}
