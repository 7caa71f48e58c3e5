package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
)

// pathTemplates is the operator's side of the documents.
const pathTemplates = "/auth/admin/templates"

// shelfOfDaemon are the documents of a daemon that runs.
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

// newPromote gives a label to a version.
func newPromote() *cobra.Command {
	i := newInstructor()
	label := i.o.set.String("label", "", "label to set instead of production")
	return i.command("promote NAME [VERSION] [--label L] [--json]", "give a version the label production", "doorward instructions promote review", 1, 2,
		func(ctx context.Context, args []string) error {
			return i.moved(i.shelf.Promote(ctx, i.by, args[0], strings.Join(args[1:], ""), *label))
		})
}

// newRollback makes production what it was before.
func newRollback() *cobra.Command {
	i := newInstructor()
	return i.command("rollback NAME [--json]", "make the previous version production again", "doorward instructions rollback review", 1, 1,
		func(ctx context.Context, args []string) error { return i.moved(i.shelf.Rollback(ctx, i.by, args[0])) })
}

// newDocumentRevoke withdraws a version, or all versions of a name.
func newDocumentRevoke() *cobra.Command {
	i := newInstructor()
	return i.command("revoke NAME [VERSION] [--json]", "withdraw a version, or all versions of a name", "doorward instructions revoke review 3f2a", 1, 2,
		func(ctx context.Context, args []string) error {
			return i.moved(i.shelf.Revoke(ctx, i.by, args[0], strings.Join(args[1:], "")))
		})
}

// moved prints what an act moved.
func (i *instructor) moved(a *library.Act, err error) error {
	if err != nil {
		return err
	}
	return i.o.print(a, actText(a))
}
