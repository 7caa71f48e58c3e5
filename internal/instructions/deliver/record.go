package deliver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
)

// A record of a delivery holds names, digests and numbers. It never holds a text,
// the value of a variable, a token or a ref.

// list returns names in as many fields as they need: name, name_2, name_3. A field of a
// record is cut at audit.MaxText bytes.
func list(name string, values []string) []audit.Field {
	var out []audit.Field
	for part := ""; len(values) > 0; part = "" {
		for len(values) > 0 && (part == "" || len(part)+1+len(values[0]) <= audit.MaxText) {
			part, values = part+","+values[0], values[1:]
		}
		n := name
		if len(out) > 0 {
			n += "_" + strconv.Itoa(len(out)+1)
		}
		out = append(out, field(n, part[1:]))
	}
	return out
}

// fields returns the record's fields about the reader and the text that is about to be
// sent; a nil t: none is.
func (s *deliveries) fields(p gate.Pass, r *Reader, t *Text) []audit.Field {
	var out []audit.Field
	if r.Session != nil {
		out = append(out, field("session", r.Session.ID))
		if r.Beside != nil {
			out = append(out, field("subject", r.Session.Subject))
		}
	} else if name := r.Who.Name(); name != p.Act().Who.Name() {
		out = append(out, field("bearer", name))
	}
	out = append(out, field("scope", strings.Join(s.readers.scope(r), ",")))
	if t == nil {
		return out
	}
	if t.Degraded != "" {
		return append(out, field("degraded", t.Degraded))
	}
	out = append(out, list("templates", t.Names)...)
	out = append(out, field("revision", t.Revision))
	if t.Version != "" {
		out = append(out, field("version", t.Version))
	}
	return append(out, field("bytes", strconv.Itoa(len(t.Body))))
}

// SessionOver returns the record of the end of a session that was saved without a caller,
// for session.Options.
func SessionOver(s *session.Session) any {
	return &audit.Record{Kind: audit.Event, Source: source, Action: ServerName + ".session.over", Resource: ServerName + "/session",
		Reason: s.Reason, Detail: sessionFields(s)}
}

// rulePrefix is the prefix of the rules of this package's refusals.
const rulePrefix = ServerName + "."

// ruleOf returns the rule of a refused delivery that was admitted.
func ruleOf(err error) string {
	var variable *document.VarError
	switch {
	case errors.Is(err, ErrNotFound):
		return rulePrefix + "not_found"
	case errors.Is(err, ErrStore):
		return rulePrefix + Unreachable
	case errors.Is(err, ErrEnded):
		return rulePrefix + Expired
	case errors.As(err, &variable):
		return rulePrefix + "invalid_variables"
	}
	return rulePrefix + "failed"
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// sessionFields returns the fields of a record about a session. Its token cannot be made
// from them.
func sessionFields(s *session.Session) []audit.Field {
	out := []audit.Field{field("session", s.ID), field("scope", strings.Join(s.Scope, ",")), field("subject", s.Subject), field("expires", stamp(s.Expires))}
	for _, f := range []audit.Field{field("project", s.Project), field("bind", s.Bind)} {
		if f.Value != "" {
			out = append(out, f)
		}
	}
	if s.CI {
		out = append(out, field("ci", fmt.Sprint(s.CI)))
	}
	return out
}
