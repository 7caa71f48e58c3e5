package main

import (
	"context"
	"net/http"
	"net/url"

	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
)

// pathTemplates is the path of the operator's resources about documents.
const pathTemplates = "/auth/admin/templates"

// shelfOfDaemon implements instructionsOperator with a running daemon.
type shelfOfDaemon struct{ o *invocation }

func templatePath(name, act string) string {
	path := pathTemplates + "/" + url.PathEscape(name)
	if act != "" {
		path += "/" + act
	}
	return path
}

func (s shelfOfDaemon) List(ctx context.Context, _ deliver.Caller) (*deliver.Listing, error) {
	all := &deliver.Listing{}
	return all, s.o.daemon.auth(ctx, http.MethodGet, pathTemplates, nil, all)
}

func (s shelfOfDaemon) Versions(ctx context.Context, _ deliver.Caller, name string) (*deliver.Versions, error) {
	all := &deliver.Versions{}
	return all, s.o.daemon.auth(ctx, http.MethodGet, templatePath(name, ""), nil, all)
}

func (s shelfOfDaemon) Show(ctx context.Context, _ deliver.Caller, name, ref string) (*deliver.Shown, error) {
	doc := &deliver.Shown{}
	return doc, s.o.daemon.auth(ctx, http.MethodGet, templatePath(name, "")+"?"+url.Values{"version": {ref}}.Encode(), nil, doc)
}

func (s shelfOfDaemon) Put(ctx context.Context, _ deliver.Caller, name, content, _ string) (*deliver.VersionInfo, error) {
	v := &deliver.VersionInfo{}
	return v, s.o.daemon.auth(ctx, http.MethodPut, templatePath(name, ""), map[string]string{"content": content}, v)
}

func (s shelfOfDaemon) act(ctx context.Context, name, what string, in any) (*library.Act, error) {
	a := &library.Act{}
	return a, s.o.daemon.auth(ctx, http.MethodPost, templatePath(name, what), in, a)
}

func (s shelfOfDaemon) Promote(ctx context.Context, _ deliver.Caller, name, version, label string) (*library.Act, error) {
	return s.act(ctx, name, "promote", map[string]string{"version": version, "label": label})
}

func (s shelfOfDaemon) Rollback(ctx context.Context, _ deliver.Caller, name string) (*library.Act, error) {
	return s.act(ctx, name, "rollback", struct{}{})
}

func (s shelfOfDaemon) Revoke(ctx context.Context, _ deliver.Caller, name, version string) (*library.Act, error) {
	return s.act(ctx, name, "revoke", map[string]string{"version": version})
}

func (s shelfOfDaemon) Access(ctx context.Context, _ deliver.Caller) (*deliver.Accessed, error) {
	all := &deliver.Accessed{}
	return all, s.o.daemon.auth(ctx, http.MethodGet, "/auth/admin/access", nil, all)
}

func (s shelfOfDaemon) Canary(ctx context.Context, _ deliver.Caller, ref string) (*deliver.Access, error) {
	leak := &deliver.Access{}
	return leak, s.o.daemon.auth(ctx, http.MethodPost, "/auth/admin/canary", map[string]string{"ref": ref}, leak)
}
