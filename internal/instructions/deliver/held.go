package deliver

import (
	"context"
	"slices"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

// approved holds an order if policy holds it (ask) or holds a document whose text it
// gives, unless the operator has approved it. An approval is valid for the documents as
// they were when it was requested.
func approved(ctx context.Context, s *deliveries, p gate.Pass, r *Reader, o order, ask policy.Ask) (gate.Pass, error) {
	if !r.Holds { // without Holds, what policy holds is denied and not in the view
		return p, nil
	}
	v, err := s.readers.view(ctx, r)
	if err != nil {
		return p, s.turn(p, r, err)
	}
	names := textsOf(v, o)
	for _, name := range names {
		if ask.Rule == "" {
			ask = s.readers.decide(r, policy.Request{Action: actionRead, Server: ServerName, Name: name, SameProgram: p.Act().SameProgram}).Ask
		}
	}
	if ask.Rule == "" {
		return p, nil
	}
	return p.Hold(ask, o.name, ordered(o, names, v.Revision()))
}

// textsOf returns the documents whose texts an order gives.
func textsOf(v sight, o order) (names []string) {
	if o.max == 0 {
		names = v.Whole(o.name)
	} else {
		for _, d := range v.Documents() {
			names = append(names, d.Name)
		}
	}
	if v.Find(document.PreambleName) != nil && !slices.Contains(names, document.PreambleName) {
		names = append(names, document.PreambleName)
	}
	return names
}

// ordered returns an order in the form for the operator.
func ordered(o order, names []string, revision string) []byte {
	list := []byte{'['}
	for i, name := range names {
		if i > 0 {
			list = append(list, ',')
		}
		list = rawjson.AppendQuote(list, name)
	}
	return rawjson.Set(nil, rawjson.Edit{Key: "name", Value: rawjson.AppendQuote(nil, o.name)}, rawjson.Edit{Key: "vars", Value: o.vars},
		rawjson.Edit{Key: "documents", Value: append(list, ']')}, rawjson.Edit{Key: "revision", Value: rawjson.AppendQuote(nil, revision)})
}
