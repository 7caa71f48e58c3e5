package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

// deliveries makes texts for readers, each with its decision and its record.
type deliveries struct {
	o       *Options
	log     *slog.Logger
	readers *readers
	counts  *counts
	failed  atomic.Int64 // when storing a ref last failed, in Unix seconds
}

// Instructions delivers the composed text, of at most max bytes; 0 means GreetingBytes.
// If there is nothing for the reader, it is the generic text. The error may be ErrStore,
// ErrEnded, or a *gate.Refusal.
func (s *deliveries) Instructions(ctx context.Context, r *Reader, max int) (*Text, error) {
	return s.admit(ctx, r, composed(max))
}

// Template delivers the source of a document: the version in production, a given
// version, or that of a label. Unknown, withdrawn and forbidden documents are all
// ErrNotFound; otherwise it is like Instructions.
func (s *deliveries) Template(ctx context.Context, r *Reader, name, version, label string) (*Text, error) {
	return s.admit(ctx, r, order{action: actionRead, name: name, source: true, version: version, label: label})
}

// Render delivers a document with its variables filled in; vars is a raw JSON object, or
// nil. The error may also be a *document.VarError.
func (s *deliveries) Render(ctx context.Context, r *Reader, name string, vars []byte) (*Text, error) {
	return s.admit(ctx, r, order{action: actionRender, name: name, vars: vars})
}

// Voice delivers the document `voice` of the class voice.
func (s *deliveries) Voice(ctx context.Context, r *Reader) (*Text, error) {
	return s.admit(ctx, r, order{action: actionRead, name: document.VoiceName})
}

// Listed is a document that a reader may read, without its text.
type Listed struct {
	*document.Document
	Tier string // with the documents that it includes
}

// Templates lists the documents that the reader may read, by name, and the revision of
// the view.
func (s *deliveries) Templates(ctx context.Context, r *Reader) (docs []Listed, revision string, err error) {
	r = r.atOnce()
	p, err := s.o.Gate.Enter(s.act(r, actionRead, "").Deferred())
	if err != nil {
		return nil, "", err
	}
	defer p.Leave("ok", 0)
	v, err := s.readers.view(ctx, r)
	if err != nil {
		return nil, "", s.turn(p, r, err)
	}
	for _, d := range v.Documents() {
		docs = append(docs, Listed{d, v.set.Tier(d)})
	}
	if err := s.showed(p, r, v); err != nil {
		return nil, "", err
	}
	return docs, v.Revision(), nil
}

// showed records that the names and descriptions of a view are about to be sent.
func (s *deliveries) showed(p gate.Pass, r *Reader, v sight) error {
	if _, err := p.Record(append(s.fields(p, r, nil), field("revision", v.Revision()))...); err != nil {
		return unrecorded(p, err)
	}
	return nil
}

// act returns the gate act of a reader that did not come by the relay.
func (s *deliveries) act(r *Reader, action, name string) gate.Act {
	a := gate.Act{Who: r.connection(), Session: r.MCP, Action: action, Server: ServerName, Name: name, Source: source, Kind: gate.Guidance}
	if r.Session != nil {
		a.Delivery = r.Session.ID
	}
	return a
}

// admit takes an order through the gate. A document that policy denies the reader gives
// the same error as one that does not exist.
func (s *deliveries) admit(ctx context.Context, r *Reader, o order) (*Text, error) {
	r = r.atOnce()
	p, err := s.o.Gate.Enter(s.act(r, o.action, o.name).Deferred())
	var refusal *gate.Refusal
	if errors.As(err, &refusal) && refusal.Code == gate.CodeDenied && o.max == 0 {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	defer p.Leave("ok", 0)
	if r.Beside != nil {
		d := s.o.Gate.Allows(policy.Request{Who: r.Who, Action: o.action, Server: ServerName, Name: o.name})
		if !d.Allow {
			return nil, s.denied(p, r, o, d)
		}
	}
	return s.deliver(ctx, p, r, o)
}

// within is admit for an order that came by the relay and has a pass.
func (s *deliveries) within(ctx context.Context, p gate.Pass, r *Reader, o order) (*Text, error) {
	d := s.readers.decide(r, policy.Request{Action: o.action, Server: ServerName, Name: o.name, SameProgram: p.Act().SameProgram})
	p = p.As(o.action, ServerName+"/"+o.name, d.Rule)
	if !d.Allow {
		return nil, s.denied(p, r, o, d)
	}
	p, err := approved(ctx, s, p, r, o, d.Ask)
	if err != nil {
		return nil, err
	}
	return s.deliver(ctx, p, r, o)
}

// denied records that policy denies the reader what its connection may ask for,
// and returns the error for the caller.
func (s *deliveries) denied(p gate.Pass, r *Reader, o order, d policy.Decision) error {
	if refusal := p.Refuse(d.Rule, gate.CodeDenied, s.fields(p, r, nil)...); refusal.Err != nil {
		return unrecorded(p, refusal.Err)
	}
	if o.max == 0 {
		return ErrNotFound
	}
	return &gate.Refusal{Code: gate.CodeDenied, Rule: d.Rule}
}

// deliver makes the text, records its delivery, and returns it. Each delivery and each
// refusal has one record.
func (s *deliveries) deliver(ctx context.Context, p gate.Pass, r *Reader, o order) (*Text, error) {
	begun := time.Now()
	t, err := s.text(ctx, r, o)
	if err != nil {
		return nil, s.turn(p, r, err)
	}
	if _, err := p.Record(s.fields(p, r, t)...); err != nil {
		return nil, unrecorded(p, err)
	}
	s.sent(ctx, r, o, t)
	s.counts.delivered(o, time.Since(begun))
	return t, nil
}

// turn records that an admitted delivery is refused, and returns the reason.
func (s *deliveries) turn(p gate.Pass, r *Reader, why error) error {
	if refusal := p.Refuse(ruleOf(why), gate.CodeDenied, s.fields(p, r, nil)...); refusal.Err != nil {
		return unrecorded(p, refusal.Err)
	}
	return why
}

// unrecorded returns the refusal for a delivery that cannot be recorded.
func unrecorded(p gate.Pass, err error) error {
	return &gate.Refusal{Code: gate.CodeUnavailable, Rule: p.Rule(), Err: fmt.Errorf("recording a delivery: %w", err)}
}

// reasonOf returns the reason that is given with the generic text for err.
func reasonOf(err error) string {
	var refusal *gate.Refusal
	switch {
	case errors.Is(err, ErrEnded):
		return Expired
	case errors.As(err, &refusal) && refusal.Code == gate.CodeDenied:
		return NotPermitted
	}
	return Unreachable
}

// text returns the text for an order.
func (s *deliveries) text(ctx context.Context, r *Reader, o order) (*Text, error) {
	v, err := s.readers.view(ctx, r)
	if err != nil {
		return nil, err
	}
	if o.max > 0 {
		return s.compose(v, r, o), nil
	}
	if o.version != "" || o.label != "" {
		return s.past(v, r, o)
	}
	return s.document(v, r, o, v.Revision())
}

// compose returns the composed text of a session. It has a ref even when it holds only
// the names of documents.
func (s *deliveries) compose(v sight, r *Reader, o order) *Text {
	if v.Empty() {
		return &Text{Body: generic, Bare: generic, Revision: v.Revision()}
	}
	ref := s.ref(r, nameSession, v.Revision())
	c := v.Compose(o.max, ref)
	return &Text{Body: c.Text, Bare: c.Text, Preamble: v.Preamble(), Ref: ref, Revision: v.Revision(), Names: c.Names, Cut: c.Cut}
}

// document returns the text of one document of a view. revision is recorded with it.
func (s *deliveries) document(v sight, r *Reader, o order, revision string) (*Text, error) {
	d := v.Find(o.name)
	if d == nil {
		return nil, ErrNotFound
	}
	read := v.Text
	if o.action == actionRender || !o.source && len(d.Variables) == 0 {
		read = func(name string) (string, error) { return v.Render(name, o.vars) }
	}
	bare, err := read(o.name)
	if err != nil {
		return nil, err
	}
	t := &Text{Bare: bare, Preamble: v.Preamble(), Ref: s.ref(r, o.name, revision), Revision: revision,
		Version: d.Version, Tier: v.set.Tier(d), Names: []string{o.name}, Document: d}
	t.Body = document.Dress(t.Preamble, t.Bare, t.Ref)
	return t, nil
}

// past delivers a version of a document other than the one in production. A
// document that the reader may not have now is not delivered in an earlier
// version either: a change of tier or audience applies to all versions.
func (s *deliveries) past(v sight, r *Reader, o order) (*Text, error) {
	then, err := s.lookup(o)
	if err != nil {
		return nil, err
	}
	known := slices.ContainsFunc(v.set.Documents(), func(d *document.Document) bool { return d.Name == o.name })
	if known && v.Find(o.name) == nil {
		return nil, ErrNotFound
	}
	set, _ := v.set.With(then...) // the problems are ignored: a document that cannot be served is in no view
	old, _ := s.readers.see(r, set)
	d := old.Find(o.name)
	if d == nil {
		return nil, ErrNotFound
	}
	return s.document(old, r, o, d.Version)
}

// lookup returns the documents of a version or a label, for all audiences.
func (s *deliveries) lookup(o order) ([]*document.Document, error) {
	if o.version != "" && o.label != "" {
		return nil, ErrNotFound
	}
	docs, err := s.o.Library.Lookup(o.name, o.version+o.label)
	if errors.Is(err, library.ErrUnknown) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("looking up a version: %w", errors.Join(ErrStore, err))
	}
	return docs, nil
}

func (s *deliveries) ref(r *Reader, name, revision string) string {
	return watermark.Ref(s.o.CanaryKey, watermark.Delivery{Session: r.key(), Template: name, Revision: revision})
}

// sent stores the ref of a text before the text is sent, so that it is recognised where
// it turns up. A failure does not withhold the text: the ref is then known to this daemon,
// and after a restart only from the audit log (leaks.recollect).
func (s *deliveries) sent(ctx context.Context, r *Reader, o order, t *Text) {
	if t.Ref == "" {
		return
	}
	now := s.o.Now()
	s.o.Refs.Add(t.Ref, watermark.Delivery{Session: r.key(), Template: o.name, Revision: t.Revision}, now)
	err := s.o.Library.Deliver(ctx, library.Delivery{Ref: t.Ref, Session: r.key(), Principal: r.Who.Name(), Template: o.name, Revision: t.Revision, Bytes: len(t.Body)})
	if last := s.failed.Load(); err != nil && now.Unix()-last >= int64(quietTime.Seconds()) && s.failed.CompareAndSwap(last, now.Unix()) {
		s.log.Warn("a delivery was not counted, and its mark may not be known after a restart", "err", err)
	}
}

// quietTime is the time between two log lines about the same failure.
const quietTime = 5 * time.Minute
