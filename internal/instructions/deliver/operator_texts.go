package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Listing holds all versions, the problems, and the state of the store.
type Listing struct {
	Templates []VersionInfo `json:"templates"`
	Problems  []Mistake     `json:"problems"`
	Store     StoreState    `json:"store"`
}

// StoreState is the state of the document store.
type StoreState struct {
	OK     bool   `json:"ok"`
	Unused bool   `json:"unused"`
	Reason string `json:"reason,omitempty"`
	Since  string `json:"since,omitempty"` // RFC 3339
	Remote bool   `json:"remote"`
}

// VersionInfo is one version of a name for one audience. Class, tier and description are
// empty if the content is not in memory. The tier includes that of included documents if
// the version is served; otherwise it is the one in its header. Times are RFC 3339, or
// empty.
type VersionInfo struct {
	Name        string   `json:"name"`
	Variant     string   `json:"variant"`
	Version     string   `json:"version"`
	Number      int64    `json:"number,omitempty"` // counted within the name
	Class       string   `json:"class,omitempty"`
	Tier        string   `json:"tier,omitempty"`
	Description string   `json:"description,omitempty"`
	Labels      []string `json:"labels"`
	State       string   `json:"state,omitempty"`
	File        string   `json:"file,omitempty"`
	Bytes       int64    `json:"bytes"`
	Waiting     bool     `json:"waiting,omitempty"`
	Served      bool     `json:"served,omitempty"`
	FirstSeen   string   `json:"first_seen,omitempty"`
	Revoked     string   `json:"revoked,omitempty"`
}

// Shown is one version with its content: the file as written.
type Shown struct {
	VersionInfo
	Content string `json:"content"`
}

// Versions holds all versions of one name, newest first.
type Versions struct {
	Name     string        `json:"name"`
	Versions []VersionInfo `json:"versions"`
}

// versions converts versions of the store.
func (o *Operator) versions(all []library.Version) []VersionInfo {
	set, _ := o.o.Shelf.Set()
	out := []VersionInfo{}
	for _, v := range all {
		info := VersionInfo{Name: v.Name, Variant: v.Variant, Version: v.Version, Number: v.Number, Labels: orEmpty(v.Labels), State: v.State,
			File: v.File, Bytes: v.Bytes, Waiting: v.Waiting, Served: v.Served, FirstSeen: stamp(v.Seen), Revoked: stamp(v.Revoked)}
		info.describe(v.Document)
		if v.Served && v.Document != nil {
			info.Tier = set.Tier(v.Document)
		}
		out = append(out, info)
	}
	return out
}

func (v *VersionInfo) describe(d *document.Document) {
	if d != nil {
		v.Class, v.Tier, v.Description = d.Class, d.Tier, d.Description
	}
}

// List returns all versions, the problems, and the state of the store.
func (o *Operator) List(ctx context.Context, by Caller) (*Listing, error) {
	c, err := o.enter(ctx, by, "list")
	if err != nil {
		return nil, err
	}
	all, err := o.o.Shelf.List(ctx)
	if err != nil {
		return nil, c.fail(err)
	}
	store, problems := o.store()
	return &Listing{o.versions(all), problems, store}, c.done(field("listed", strconv.Itoa(len(all))))
}

// store returns the state of the library, and the problems of its documents.
func (o *Operator) store() (StoreState, []Mistake) {
	_, state := o.o.Shelf.Set()
	return StoreState{OK: state.OK, Unused: state.Unused, Reason: state.Reason, Since: stamp(state.Since), Remote: state.Remote}, mistakes(state.Problems)
}

// Versions lists the versions of one name.
func (o *Operator) Versions(ctx context.Context, by Caller, name string) (*Versions, error) {
	c, err := o.enter(ctx, by, "versions")
	if err != nil {
		return nil, err
	}
	all, err := o.o.Shelf.Versions(ctx, name)
	if err != nil {
		return nil, c.fail(err, field("name", clean(name)))
	}
	return &Versions{name, o.versions(all)}, c.done(field("name", name), field("listed", strconv.Itoa(len(all))))
}

// Show returns one version with its content. ref is a label, or a version or its prefix;
// empty: production.
func (o *Operator) Show(ctx context.Context, by Caller, name, ref string) (*Shown, error) {
	c, err := o.enter(ctx, by, "show")
	if err != nil {
		return nil, err
	}
	named := []audit.Field{field("name", clean(name)), field("ref", clean(ref))}
	content, err := o.o.Shelf.Content(ctx, name, ref)
	if err != nil {
		return nil, c.fail(err, named...)
	}
	d, err := document.Parse(name+".md", []byte(content))
	if err != nil {
		return nil, c.fail(fmt.Errorf("%w: %w", library.ErrDamaged, err), named...)
	}
	shown := &Shown{infoOfDocument(d), content}
	all, err := o.o.Shelf.Versions(ctx, name)
	if err != nil {
		return nil, c.fail(err, named...)
	}
	for _, v := range o.versions(all) {
		if v.Version == d.Version {
			v.describe(d)
			shown.VersionInfo = v
		}
	}
	return shown, c.done(field("name", name), field("version", d.Version))
}

// Put writes a document into the instruction directory. replace, if not empty, is the
// version whose file is replaced, whatever audience the new document has; otherwise it
// replaces the file of the same name and audience, or creates one. The error of a content
// that is no document is document.Problems.
func (o *Operator) Put(ctx context.Context, by Caller, name, content, replace string) (*VersionInfo, error) {
	c, err := o.enter(ctx, by, "put")
	if err != nil {
		return nil, err
	}
	d, err := parsed(name, content)
	if err != nil {
		return nil, c.fail(err, field("name", clean(name)))
	}
	fields := []audit.Field{field("name", name), field("version", d.Version)}
	if replace != "" {
		fields = append(fields, field("replaces", clean(replace)))
	}
	if err := o.mayPut(ctx, name, replace); err != nil {
		return nil, c.fail(err, fields...)
	}
	record := func(*library.Act) error { return c.write(fields...) }
	if replace != "" {
		err = o.o.Shelf.Replace(ctx, name, replace, []byte(content), record)
	} else {
		err = o.o.Shelf.Put(ctx, name, []byte(content), record)
	}
	if err != nil {
		return nil, c.fail(err, fields...)
	}
	defer c.end()
	return o.taken(ctx, d), nil
}

// parsed parses a content as the document of that name.
func parsed(name, content string) (*document.Document, error) {
	file := name + ".md"
	d, err := document.Parse(file, []byte(content))
	if err != nil {
		return nil, err
	}
	if d.Name != name {
		return nil, document.Problems{{File: file, Line: 1, Text: "its header has another name"}}
	}
	return d, nil
}

// mayPut refuses a Put that would fail, before there is a record that says it was done.
func (o *Operator) mayPut(ctx context.Context, name, replace string) error {
	if _, state := o.o.Shelf.Set(); state.Remote {
		return library.ErrRemote
	}
	if replace == "" {
		return nil
	}
	all, err := o.o.Shelf.Versions(ctx, name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(v library.Version) bool { return v.File != "" && strings.HasPrefix(v.Version, replace) }) {
		return library.ErrAbsent
	}
	return nil
}

// taken returns the version that the written file has become. While the directory is not
// watched, it is computed from the document.
func (o *Operator) taken(ctx context.Context, d *document.Document) *VersionInfo {
	info := infoOfDocument(d)
	all, err := o.o.Shelf.Versions(ctx, d.Name)
	if err != nil {
		return &info
	}
	for _, v := range o.versions(all) {
		if v.Version == d.Version {
			v.describe(d)
			return &v
		}
	}
	return &info
}

// infoOfDocument returns the properties in a document itself.
func infoOfDocument(d *document.Document) VersionInfo {
	info := VersionInfo{Name: d.Name, Version: d.Version, Variant: d.Variant(), Labels: []string{}}
	info.describe(d)
	return info
}

// Promote sets a label, production if it is empty, to a version.
func (o *Operator) Promote(ctx context.Context, by Caller, name, version, label string) (*library.Act, error) {
	c, err := o.enter(ctx, by, "promote")
	if err != nil {
		return nil, err
	}
	return c.moved(o.o.Shelf.Promote(ctx, name, version, label, c.note))
}

// Rollback sets production to its earlier version.
func (o *Operator) Rollback(ctx context.Context, by Caller, name string) (*library.Act, error) {
	c, err := o.enter(ctx, by, "rollback")
	if err != nil {
		return nil, err
	}
	return c.moved(o.o.Shelf.Rollback(ctx, name, c.note))
}

// Revoke withdraws a version permanently or, if the version is empty, the name until a
// version of it is promoted.
func (o *Operator) Revoke(ctx context.Context, by Caller, name, version string) (*library.Act, error) {
	c, err := o.enter(ctx, by, "revoke")
	if err != nil {
		return nil, err
	}
	return c.moved(o.o.Shelf.Revoke(ctx, name, version, c.note))
}

// Accessed is the list of deliveries.
type Accessed struct {
	Deliveries []Access `json:"deliveries"`
}

// Access counts the deliveries of one revision to one session.
type Access struct {
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Template  string `json:"template"`
	Revision  string `json:"revision"`
	Bytes     int64  `json:"bytes"`
	Count     int64  `json:"count"`
	First     string `json:"first"`
	Last      string `json:"last"`
}

func accessOf(d library.Delivered) Access {
	return Access{Session: d.Session, Principal: d.Principal, Template: d.Template, Revision: d.Revision, Bytes: int64(d.Bytes), Count: d.Count,
		First: stamp(d.First), Last: stamp(d.Last)}
}

// Access lists the newest deliveries of the last 30 days, newest first.
func (o *Operator) Access(ctx context.Context, by Caller) (*Accessed, error) {
	c, err := o.enter(ctx, by, "access")
	if err != nil {
		return nil, err
	}
	all, err := o.o.Shelf.Recent(ctx)
	if err != nil {
		return nil, c.fail(err)
	}
	out := &Accessed{Deliveries: []Access{}}
	for _, d := range all {
		out.Deliveries = append(out.Deliveries, accessOf(d))
	}
	return out, c.done(field("listed", strconv.Itoa(len(all))))
}

// Canary returns the session to which a ref was given, and the text. ErrNotFound: the ref
// was not given out in the last 30 days.
func (o *Operator) Canary(ctx context.Context, by Caller, ref string) (*Access, error) {
	c, err := o.enter(ctx, by, "canary")
	if err != nil {
		return nil, err
	}
	found, err := o.trace(ctx, ref)
	if err != nil {
		return nil, c.fail(err)
	}
	return found, c.done(field("session", found.Session), field("template", found.Template), field("revision", found.Revision))
}

// trace looks for a ref in the store, then among the deliveries that the store does not
// have.
func (o *Operator) trace(ctx context.Context, ref string) (*Access, error) {
	if !watermark.IsRef(ref) {
		return nil, malformed()
	}
	d, known, err := o.o.Shelf.Delivered(ctx, ref)
	if err == nil && known {
		a := accessOf(d)
		return &a, nil
	}
	if o.o.Refs != nil {
		o.s.leaks.recalled(ctx, time.Now().Add(recallWait))
		if d, ok := o.o.Refs.Find(ref); ok {
			if was, ok := o.s.leaks.recall.find(d); ok {
				a := accessOf(was)
				return &a, nil
			}
			return &Access{Session: d.Session, Principal: o.subject(d.Session), Template: d.Template, Revision: d.Revision}, nil
		}
	}
	return nil, errors.Join(ErrNotFound, err)
}

// subject returns the subject of a session, as far as it is known.
func (o *Operator) subject(id string) string {
	if o.o.Sessions == nil {
		return ""
	}
	s, _ := o.o.Sessions.Find(id)
	return s.Subject
}
