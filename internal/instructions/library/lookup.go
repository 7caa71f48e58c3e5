package library

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
)

// lookupTime is how long a reader waits for the database.
const lookupTime = 2 * time.Second

// Lookup returns the documents of a name that have a label, or the version given by 12
// digits or more, if it ever had a label. There is one for each audience, from which the
// caller selects. A revoked document, or one without a file, counts as missing. Errors:
// ErrUnknown; the store's, for a version that is not in memory.
func (l *Library) Lookup(name, ref string) ([]*document.Document, error) {
	if docs := l.now.Load().labels[name][ref]; len(docs) > 0 {
		return slices.Clone(docs), nil
	}
	if d := l.now.Load().version(name, ref); d != nil {
		return []*document.Document{d}, nil
	}
	if !isPrefix(ref, minReader) {
		return nil, ErrUnknown
	}
	if l.remote != nil {
		for _, d := range l.now.Load().labels[name][Production] {
			if strings.HasPrefix(d.Version, ref) {
				return []*document.Document{d}, nil
			}
		}
		return nil, ErrUnknown
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	var out []*document.Document
	err := l.o.DB.Read(ctx, func(tx *store.Tx) error {
		found, err := matching(tx, l.o.Installation, name, ref)
		if err != nil {
			return err
		}
		for _, r := range found {
			d, err := catalogue{l}.given(tx, r)
			if err != nil {
				return err
			}
			if d != nil {
				out = append(out, d)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("looking for a version: %w", err)
	case len(out) == 0:
		return nil, ErrUnknown
	}
	return out, nil
}

// version returns the document of a labelled version given in full, or nil. It needs no
// database.
func (s *snapshot) version(name, version string) *document.Document {
	for _, docs := range s.labels[name] {
		for _, d := range docs {
			if d.Version == version {
				return d
			}
		}
	}
	return nil
}

// catalogue reads the stored versions of documents.
type catalogue struct{ l *Library }

// given returns the document of a row if readers may have it, otherwise nil.
func (c catalogue) given(tx *store.Tx, r row) (*document.Document, error) {
	if r.labelled == 0 || r.revoked != 0 {
		return nil, nil
	}
	c.l.mu.Lock()
	_, there := c.l.here[r.key()]
	s := c.l.book[r.key()]
	d := held(c).inMemory(r.edition())
	c.l.mu.Unlock()
	if !there || s == nil || s.state != stateOpen {
		return nil, nil
	}
	if d != nil {
		return d, nil
	}
	sealed, err := sealedContent(tx, c.l.o.Installation, r.edition())
	if err != nil {
		return nil, fmt.Errorf("reading a document: %w", err)
	}
	if _, d, err = c.l.open(r.edition(), sealed); err != nil {
		c.l.o.Log.Warn("a requested version cannot be opened", "name", r.name, "version", short(r.version), "err", err)
		return nil, nil
	}
	return d, nil
}

// Version is one version of a document, for the operator.
type Version struct {
	Name     string
	Variant  string // document.Document.Variant
	Version  string // 64 hex digits
	Number   int64  // counted within the name
	Bytes    int64  // of the file
	Seen     time.Time
	Revoked  time.Time          // zero: not revoked
	Labels   []string           // sorted
	State    string             // of its name and audience: open, held or withdrawn (see Revoke)
	File     string             // the file that holds it now; empty: none
	Waiting  bool               // it is in the directory and never had a label
	Served   bool               // readers get it
	Document *document.Document // nil unless it is in memory
}

// List returns the versions that are in the directory or have a label, by name, newest
// first.
func (l *Library) List(ctx context.Context) ([]Version, error) {
	all, err := catalogue{l}.versions(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("listing documents: %w", err)
	}
	return slices.DeleteFunc(all, func(v Version) bool { return v.File == "" && len(v.Labels) == 0 }), nil
}

// Versions returns all versions of a name, newest first. Errors: ErrUnknown, the store's.
func (l *Library) Versions(ctx context.Context, name string) ([]Version, error) {
	all, err := catalogue{l}.versions(ctx, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("listing versions of %s: %w", name, err)
	case len(all) == 0:
		return nil, ErrUnknown
	}
	return all, nil
}

// versions returns the versions of one name, or of all with "".
func (c catalogue) versions(ctx context.Context, name string) (out []Version, err error) {
	if c.l.remote != nil {
		return c.farVersions(name), nil
	}
	var rows []row
	err = c.l.o.DB.Read(ctx, func(tx *store.Tx) (err error) {
		rows, err = selectRows(tx, `AND (name = ?2 OR ?2 = '')`, c.l.o.Installation, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	for _, r := range rows {
		out = append(out, c.version(r))
	}
	return out, nil
}

// version combines a row with the state in memory. The caller holds mu.
func (c catalogue) version(r row) Version {
	v := Version{Name: r.name, Variant: r.variant, Version: r.version, Number: r.number, Bytes: r.bytes,
		Seen: time.UnixMilli(r.seen), State: stateOpen, Document: held(c).inMemory(r.edition())}
	if r.revoked != 0 {
		v.Revoked = time.UnixMilli(r.revoked)
	}
	p, there := c.l.here[r.key()]
	if p.doc != nil && p.doc.Version == r.version {
		v.File = p.file
	}
	v.Waiting = v.File != "" && r.labelled == 0 && r.revoked == 0
	s := c.l.book[r.key()]
	if s == nil {
		return v
	}
	v.State = s.state
	for label, version := range s.labels {
		if version == r.version {
			v.Labels = append(v.Labels, label)
		}
	}
	slices.Sort(v.Labels)
	v.Served = there && s.serves() == r.version && v.Document != nil
	return v
}

// farVersions returns the documents that the remote serves now.
func (c catalogue) farVersions(name string) (out []Version) {
	for _, d := range c.l.now.Load().of {
		if name == "" || d.Name == name {
			out = append(out, Version{Name: d.Name, Version: d.Version, Number: 1, Bytes: int64(len(d.Body)), State: stateOpen,
				Labels: []string{Production}, File: d.File, Served: true, Document: d})
		}
	}
	return out
}

// Content returns the file of a version as it was written. ref is a label, "" for
// production, or a version by 4 digits or more. Errors: ErrUnknown, ErrAmbiguous (also
// for a label of several audiences), ErrDamaged, ErrRemote, the store's.
func (l *Library) Content(ctx context.Context, name, ref string) (string, error) {
	if l.remote != nil {
		return "", ErrRemote
	}
	all, err := l.Versions(ctx, name)
	if err != nil {
		return "", err
	}
	if ref == "" {
		ref = Production
	}
	all = slices.DeleteFunc(all, func(v Version) bool {
		return !slices.Contains(v.Labels, ref) && !(isPrefix(ref, minPrefix) && strings.HasPrefix(v.Version, ref))
	})
	switch {
	case len(all) == 0:
		return "", ErrUnknown
	case len(all) > 1:
		return "", ErrAmbiguous
	}
	e := edition{name, all[0].Version}
	var sealed []byte
	err = l.o.DB.Read(ctx, func(tx *store.Tx) (err error) {
		sealed, err = sealedContent(tx, l.o.Installation, e)
		return err
	})
	if errors.Is(err, store.ErrNoRow) {
		return "", ErrUnknown
	}
	if err != nil {
		return "", fmt.Errorf("reading a document: %w", err)
	}
	content, _, err := l.open(e, sealed)
	if err != nil {
		return "", fmt.Errorf("%w: it %w", ErrDamaged, err)
	}
	return string(content), nil
}
