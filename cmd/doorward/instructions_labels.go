package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/instructions/library"
)

// newPromote returns the command that gives a label to a version.
func newPromote() *cobra.Command {
	i := newInstructor()
	label := i.o.set.String("label", "", "label to set instead of production")
	return i.command("promote NAME [VERSION] [--label L] [--json]", "give a version the label production", "doorward instructions promote review", 1, 2,
		func(ctx context.Context, args []string) error {
			return i.moved(i.shelf.Promote(ctx, i.by, args[0], strings.Join(args[1:], ""), *label))
		})
}

// newRollback returns the command that gives the label production to its previous version.
func newRollback() *cobra.Command {
	i := newInstructor()
	return i.command("rollback NAME [--json]", "make the previous version production again", "doorward instructions rollback review", 1, 1,
		func(ctx context.Context, args []string) error { return i.moved(i.shelf.Rollback(ctx, i.by, args[0])) })
}

// newDocumentRevoke returns the command that withdraws a version, or all versions of a name.
func newDocumentRevoke() *cobra.Command {
	i := newInstructor()
	return i.command("revoke NAME [VERSION] [--json]", "withdraw a version, or all versions of a name", "doorward instructions revoke review 3f2a", 1, 2,
		func(ctx context.Context, args []string) error {
			return i.moved(i.shelf.Revoke(ctx, i.by, args[0], strings.Join(args[1:], "")))
		})
}

// moved prints the result of an act on labels or versions.
func (i *instructor) moved(a *library.Act, err error) error {
	if err != nil {
		return err
	}
	return i.o.print(a, actText(a))
}
