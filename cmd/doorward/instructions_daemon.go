package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
)

// pathTemplates is the operator's side of the documents.
const pathTemplates = "/auth/admin/templates"

// shelfOfDaemon are the documents of a daemon that runs.
type shelfOfDaemon struct{ o *operator }

func templatePath(name, act string) string {
	path := pathTemplates + "/" + url.PathEscape(name)
	if act != "" {
		path += "/" + act
	}
	return path
}

func (s shelfOfDaemon) List(ctx context.Context) (*deliver.Listing, error) {
	all := &deliver.Listing{}
	return all, s.o.auth(ctx, http.MethodGet, pathTemplates, nil, all)
}

func (s shelfOfDaemon) Versions(ctx context.Context, name string) (*deliver.Versions, error) {
	all := &deliver.Versions{}
	return all, s.o.auth(ctx, http.MethodGet, templatePath(name, ""), nil, all)
}

func (s shelfOfDaemon) Show(ctx context.Context, name, ref string) (*deliver.Shown, error) {
	doc := &deliver.Shown{}
	return doc, s.o.auth(ctx, http.MethodGet, templatePath(name, "")+"?"+url.Values{"version": {ref}}.Encode(), nil, doc)
}

func (s shelfOfDaemon) Put(ctx context.Context, name, content string) (*deliver.VersionInfo, error) {
	v := &deliver.VersionInfo{}
	return v, s.o.auth(ctx, http.MethodPut, templatePath(name, ""), map[string]string{"content": content}, v)
}

func (s shelfOfDaemon) act(ctx context.Context, name, what string, in any) (*library.Act, error) {
	a := &library.Act{}
	return a, s.o.auth(ctx, http.MethodPost, templatePath(name, what), in, a)
}

func (s shelfOfDaemon) Promote(ctx context.Context, name, version, label string) (*library.Act, error) {
	return s.act(ctx, name, "promote", map[string]string{"version": version, "label": label})
}

func (s shelfOfDaemon) Rollback(ctx context.Context, name string) (*library.Act, error) {
	return s.act(ctx, name, "rollback", struct{}{})
}

func (s shelfOfDaemon) Revoke(ctx context.Context, name, version string) (*library.Act, error) {
	return s.act(ctx, name, "revoke", map[string]string{"version": version})
}

func (s shelfOfDaemon) Access(ctx context.Context) (*deliver.Accessed, error) {
	all := &deliver.Accessed{}
	return all, s.o.auth(ctx, http.MethodGet, "/auth/admin/access", nil, all)
}

func (s shelfOfDaemon) Canary(ctx context.Context, ref string) (*deliver.Access, error) {
	leak := &deliver.Access{}
	return leak, s.o.auth(ctx, http.MethodPost, "/auth/admin/canary", map[string]string{"ref": ref}, leak)
}

// promote gives a label to a version.
func (i *instructor) promote(ctx context.Context, args []string) error {
	label := i.set.String("label", "", "instead of production, which is what sessions get")
	rest, err := i.parse(args)
	if err != nil || len(rest) < 1 || len(rest) > 2 {
		return errors.Join(errUsage, err)
	}
	return i.act(ctx, func() (*library.Act, error) {
		return i.shelf.Promote(ctx, rest[0], second(rest), *label)
	})
}

// rollback makes production what it was before.
func (i *instructor) rollback(ctx context.Context, args []string) error {
	rest, err := i.parse(args)
	if err != nil {
		return err
	}
	name, err := one(rest)
	if err != nil {
		return err
	}
	return i.act(ctx, func() (*library.Act, error) { return i.shelf.Rollback(ctx, name) })
}

// revoke withdraws a version, or all of a name.
func (i *instructor) revoke(ctx context.Context, args []string) error {
	rest, err := i.parse(args)
	if err != nil || len(rest) < 1 || len(rest) > 2 {
		return errors.Join(errUsage, err)
	}
	return i.act(ctx, func() (*library.Act, error) { return i.shelf.Revoke(ctx, rest[0], second(rest)) })
}

func second(rest []string) string {
	if len(rest) > 1 {
		return rest[1]
	}
	return ""
}

func (i *instructor) act(ctx context.Context, do func() (*library.Act, error)) error {
	if err := i.open(ctx); err != nil {
		return err
	}
	a, err := do()
	if err != nil {
		return err
	}
	return i.print(a, actText(a))
}
