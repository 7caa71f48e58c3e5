package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
)

// instructionsOperator has the acts of the commands on documents. It is implemented by
// shelfOfDaemon, and without a daemon by the store (deliver.Operator). by is the caller,
// which the daemon determines itself.
type instructionsOperator interface {
	// List returns each name and audience that is in the directory, has a label
	// or waits, and the problems of the directory.
	List(ctx context.Context, by deliver.Caller) (*deliver.Listing, error)
	// Versions returns the versions of one name, newest first.
	Versions(ctx context.Context, by deliver.Caller, name string) (*deliver.Versions, error)
	// Show returns one version with the whole text of its file. ref is a label or the
	// beginning of a version.
	Show(ctx context.Context, by deliver.Caller, name, ref string) (*deliver.Shown, error)
	// Put writes a document to the directory. The commands leave replace empty.
	Put(ctx context.Context, by deliver.Caller, name, content, replace string) (*deliver.VersionInfo, error)
	// Promote gives a label (empty: production) to a version (empty: the version in
	// the directory).
	Promote(ctx context.Context, by deliver.Caller, name, version, label string) (*library.Act, error)
	// Rollback gives production to the version that had it before.
	Rollback(ctx context.Context, by deliver.Caller, name string) (*library.Act, error)
	// Revoke withdraws one version (empty: all versions of the name).
	Revoke(ctx context.Context, by deliver.Caller, name, version string) (*library.Act, error)
	// Access returns the deliveries, newest first.
	Access(ctx context.Context, by deliver.Caller) (*deliver.Accessed, error)
	// Canary returns the delivery of a watermark.
	Canary(ctx context.Context, by deliver.Caller, ref string) (*deliver.Access, error)
}

// instructor is one run of a command on documents.
type instructor struct {
	o     *invocation
	shelf instructionsOperator
	by    deliver.Caller // zero with a daemon
	end   func()         // closes the store; nil with a daemon
}

func newInstructor() *instructor { return &instructor{o: newInvocation()} }

// command returns a command that opens the documents before it runs.
func (i *instructor) command(use, short, example string, least, most int, run func(context.Context, []string) error) *cobra.Command {
	return i.o.command(use, short, example, least, most, func(ctx context.Context, args []string) error {
		defer i.close()
		if err := i.open(ctx); err != nil {
			return err
		}
		return storeFailure(run(ctx, args))
	})
}

// open sets shelf to the running daemon, or without one to the store.
func (i *instructor) open(ctx context.Context) error {
	c, err := i.o.daemon.connect()
	if err != nil {
		return err
	}
	err = c.Reach(ctx)
	if errors.Is(err, client.ErrNoDaemon) {
		fmt.Fprintln(stderr(), "doorward: no daemon is running: the store is used directly")
		return i.openOffline(ctx)
	}
	i.shelf = shelfOfDaemon{i.o}
	return err
}

func (i *instructor) close() {
	if i.end != nil {
		i.end()
		i.end = nil
	}
	i.o.daemon.close()
}

// printExactly is print for a document: it is written to a file or a pipe without escapes.
func (i *instructor) printExactly(v any, text string) error {
	if i.o.json {
		return i.o.print(v, text)
	}
	_, err := io.WriteString(exactly(), text)
	return err
}
