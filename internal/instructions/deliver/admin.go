package deliver

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/wire"
)

func (q operatorRequest) operator() *Operator { return q.s.Operator() }

// by returns the caller of an operator's request.
func (q operatorRequest) by() Caller {
	processes, complete := q.s.o.Above(q.r)
	return Caller{Who: q.who, Processes: processes, Complete: complete}
}

// answer answers with the result of an act of the operator.
func (q operatorRequest) answer(out any, err error) error {
	if err != nil {
		return err
	}
	return response(q).plain(http.StatusOK, out)
}

// args reads the body of an operator's request. A malformed body is refused behind the
// gate, so that it is recorded.
func (q operatorRequest) args(into any) error {
	if err := decode(q.body, into); err != nil {
		return q.wrong(err)
	}
	return nil
}

func (q operatorRequest) wrong(err error) error {
	return q.operator().Malformed(q.r.Context(), q.by(), err)
}

func (q operatorRequest) adminList() error {
	return q.answer(q.operator().List(q.r.Context(), q.by()))
}

// adminShow returns the versions of a name, or with ?version= one content.
func (q operatorRequest) adminShow() error {
	ref := q.query.Get("version")
	switch {
	case ref == "":
		return q.answer(q.operator().Versions(q.r.Context(), q.by(), q.name))
	case !isRef(ref):
		return q.wrong(malformed())
	}
	return q.answer(q.operator().Show(q.r.Context(), q.by(), q.name, ref))
}

// isRef reports whether s has the form of a label, or of a version or its prefix.
func isRef(s string) bool { return document.ValidName(s) || isDigest(s) }

func (q operatorRequest) adminPut() error {
	var in struct {
		Content *string `json:"content"`
		Replace string  `json:"replace"`
	}
	if err := q.args(&in); err != nil {
		return err
	}
	switch {
	case in.Content == nil, in.Replace != "" && !isRef(in.Replace):
		return q.wrong(malformed())
	case len(*in.Content) > document.MaxBytes:
		return q.wrong(tooLarge())
	}
	return q.answer(q.operator().Put(q.r.Context(), q.by(), q.name, *in.Content, in.Replace))
}

func (q operatorRequest) adminPromote() error {
	var in struct {
		Version string `json:"version"`
		Label   string `json:"label"`
	}
	if err := q.args(&in); err != nil {
		return err
	}
	if in.Version != "" && !isRef(in.Version) || in.Label != "" && !document.ValidName(in.Label) {
		return q.wrong(malformed())
	}
	return q.answer(q.operator().Promote(q.r.Context(), q.by(), q.name, in.Version, in.Label))
}

func (q operatorRequest) adminRollback() error {
	if err := q.args(&struct{}{}); err != nil {
		return err
	}
	return q.answer(q.operator().Rollback(q.r.Context(), q.by(), q.name))
}

func (q operatorRequest) adminRevoke() error {
	var in struct {
		Version string `json:"version"`
	}
	if err := q.args(&in); err != nil {
		return err
	}
	if in.Version != "" && !isRef(in.Version) {
		return q.wrong(malformed())
	}
	return q.answer(q.operator().Revoke(q.r.Context(), q.by(), q.name, in.Version))
}

func (q operatorRequest) adminAccess() error {
	return q.answer(q.operator().Access(q.r.Context(), q.by()))
}

func (q operatorRequest) adminCanary() error {
	var in struct {
		Ref string `json:"ref"`
	}
	if err := q.args(&in); err != nil {
		return err
	}
	return q.answer(q.operator().Canary(q.r.Context(), q.by(), in.Ref))
}

func (q operatorRequest) adminSessions() error {
	return q.answer(q.operator().Sessions(q.r.Context(), q.by()))
}

func (q operatorRequest) adminIssue() error {
	var in struct {
		Scope json.RawMessage `json:"scope"`
		TTL   *int            `json:"ttl_s"`
		Name  string          `json:"name"`
	}
	if err := q.args(&in); err != nil {
		return err
	}
	ask := CIRequest{Scope: scopeOf(in.Scope), Name: in.Name}
	if in.TTL != nil {
		if *in.TTL < 1 || *in.TTL > maxTTL {
			return q.wrong(malformed())
		}
		ask.TTL = time.Duration(*in.TTL) * time.Second
	}
	out, err := q.operator().IssueCI(q.r.Context(), q.by(), ask)
	if err != nil {
		return err
	}
	return response(q).created(out)
}

// scopeOf reads a scope: a word, or a list of words. Any other value gives none.
func scopeOf(raw json.RawMessage) []string {
	if word, ok := wire.Text(raw); ok {
		return []string{word}
	}
	var all []string
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	return all
}

func (q operatorRequest) adminRevokeSession() error {
	if err := q.args(&struct{}{}); err != nil {
		return err
	}
	return q.answer(q.operator().RevokeSession(q.r.Context(), q.by(), q.name))
}

func (q operatorRequest) adminStatus() error {
	return q.answer(q.operator().Status(q.r.Context(), q.by()))
}
