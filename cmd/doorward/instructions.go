package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
)

// newInstructions is the operator's side of instruction delivery. With a daemon
// the acts are the daemon's, which refuses them to the shells of agents;
// without one they go to the store.
func newInstructions() *cobra.Command {
	return group("instructions", "manage the documents delivered to sessions: versions, labels, readers",
		newDocumentList(), newDocumentShow(), newDocumentDiff(), newDocumentVerify(), newPromote(), newRollback(),
		newDocumentRevoke(), newDocumentEdit(), newDocumentImport(), newAccess(), newCanary())
}

// instructionsOperator is what the commands need of the documents, from a
// daemon or from the store without one (deliver.Operator). by is who asks, where
// there is no daemon to tell.
type instructionsOperator interface {
	// List returns each name and audience that is in the directory, has a label
	// or waits, and the problems of the directory.
	List(ctx context.Context, by deliver.Caller) (*deliver.Listing, error)
	// Versions are those of one name, newest first.
	Versions(ctx context.Context, by deliver.Caller, name string) (*deliver.Versions, error)
	// Show gives one version with its text, the whole file. ref is a label or the
	// beginning of a version.
	Show(ctx context.Context, by deliver.Caller, name, ref string) (*deliver.Shown, error)
	// Put writes a document into the directory. The commands replace no version.
	Put(ctx context.Context, by deliver.Caller, name, content, replace string) (*deliver.VersionInfo, error)
	// Promote gives a label, empty for production, to a version; empty: to what
	// the directory holds.
	Promote(ctx context.Context, by deliver.Caller, name, version, label string) (*library.Act, error)
	Rollback(ctx context.Context, by deliver.Caller, name string) (*library.Act, error)
	// Revoke withdraws one version, or with "" the name.
	Revoke(ctx context.Context, by deliver.Caller, name, version string) (*library.Act, error)
	// Access is who read what, newest first.
	Access(ctx context.Context, by deliver.Caller) (*deliver.Accessed, error)
	// Canary says which delivery a ref is from.
	Canary(ctx context.Context, by deliver.Caller, ref string) (*deliver.Access, error)
}

// instructor is one run of a command on documents.
type instructor struct {
	o     *invocation
	shelf instructionsOperator
	by    deliver.Caller // without a daemon
	end   func()         // closes the store; nil with a daemon
}

func newInstructor() *instructor { return &instructor{o: newInvocation()} }

// command makes a command that opens the documents before it runs.
func (i *instructor) command(use, short, example string, least, most int, run func(context.Context, []string) error) *cobra.Command {
	return i.o.command(use, short, example, least, most, func(ctx context.Context, args []string) error {
		defer i.close()
		if err := i.open(ctx); err != nil {
			return err
		}
		return storeFailure(run(ctx, args))
	})
}

// open finds the documents: at the daemon, or without one in the store.
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

// newDocumentList lists the documents, or the versions of one.
func newDocumentList() *cobra.Command {
	i := newInstructor()
	return i.command("list [NAME] [--json]", "list the documents, or the versions of one", "doorward instructions list", 0, 1,
		func(ctx context.Context, args []string) error {
			if len(args) == 1 {
				versions, err := i.shelf.Versions(ctx, i.by, args[0])
				if err != nil {
					return err
				}
				return i.o.print(versions, versionsText(versions.Versions))
			}
			all, err := i.shelf.List(ctx, i.by)
			if err != nil {
				return err
			}
			if !i.o.json {
				sayStore(all)
			}
			return i.o.print(all, versionsText(all.Templates))
		})
}

// sayStore prints the problems of the store.
func sayStore(all *deliver.Listing) {
	for _, p := range all.Problems {
		fmt.Fprintln(stderr(), mistakeText(p))
	}
	switch {
	case all.Store.Unused:
		fmt.Fprintln(stderr(), "doorward: there are no instructions: put documents into the directory instructions beside doorward.yaml, or set instructions.dir")
	case !all.Store.OK:
		fmt.Fprintln(stderr(), "doorward: the store is unreachable:", plaintext.Line(all.Store.Reason))
	}
}

// newDocumentShow prints a document exactly as its file is.
func newDocumentShow() *cobra.Command {
	i := newInstructor()
	version := i.o.set.String("version", "", "the beginning of a version")
	label := i.o.set.String("label", "", "a label instead of production")
	c := i.command("show NAME [--version V | --label L] [--json]", "print a document", "doorward instructions show review --label next", 1, 1,
		func(ctx context.Context, args []string) error {
			doc, err := i.shelf.Show(ctx, i.by, args[0], cmp.Or(*version, *label, library.Production))
			if err != nil {
				return err
			}
			return i.printExactly(doc, doc.Content)
		})
	number := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if *version != "" && *label != "" {
			return errUsage
		}
		return number(c, args)
	}
	return c
}

// printExactly is print for a document: a file or a pipe gets every byte of it.
func (i *instructor) printExactly(v any, text string) error {
	if i.o.json {
		return i.o.print(v, text)
	}
	_, err := io.WriteString(exactly(), text)
	return err
}

// newDocumentDiff shows the difference between two versions. The default is
// production and what waits to replace it, or else what was before it.
func newDocumentDiff() *cobra.Command {
	i := newInstructor()
	return i.command("diff NAME [V1 [V2]] [--json]", "show the difference between two versions", "doorward instructions diff review", 1, 3,
		func(ctx context.Context, args []string) error {
			name := args[0]
			from, to, err := i.two(ctx, name, args[1:])
			if err != nil {
				return err
			}
			text := unified(name+"@"+short(from.Version), name+"@"+short(to.Version), from.Content, to.Content)
			return i.printExactly(map[string]string{"name": name, "from": from.Version, "to": to.Version, "diff": text}, text)
		})
}

// two are the versions that a diff is of.
func (i *instructor) two(ctx context.Context, name string, refs []string) (from, to *deliver.Shown, err error) {
	switch len(refs) {
	case 0:
		all, err := i.shelf.Versions(ctx, i.by, name)
		if err != nil {
			return nil, nil, err
		}
		if refs, err = pairOf(all.Versions); err != nil {
			return nil, nil, err
		}
	case 1:
		refs = []string{refs[0], library.Production}
	}
	if from, err = i.shelf.Show(ctx, i.by, name, refs[0]); err != nil {
		return nil, nil, err
	}
	to, err = i.shelf.Show(ctx, i.by, name, refs[1])
	return from, to, err
}

// pairOf chooses what a diff without versions is of: production and the newest
// version that waits, or, where none waits, what was before production.
func pairOf(versions []deliver.VersionInfo) ([]string, error) {
	p := slices.IndexFunc(versions, func(v deliver.VersionInfo) bool { return slices.Contains(v.Labels, library.Production) })
	if p < 0 {
		return nil, fail(exitFailed, "no version has the label production: name two versions")
	}
	same := func(v deliver.VersionInfo) bool { return v.Variant == versions[p].Variant && v.Revoked == "" }
	if n := slices.IndexFunc(versions[:p], same); n >= 0 {
		return []string{versions[p].Version, versions[n].Version}, nil
	}
	n := slices.IndexFunc(versions[p+1:], same)
	if n < 0 {
		return nil, fail(exitFailed, "there is only one version")
	}
	return []string{versions[p+1+n].Version, versions[p].Version}, nil
}

// newAccess lists who read what.
func newAccess() *cobra.Command {
	i := newInstructor()
	return i.command("access [--json]", "list deliveries: reader, document and time", "doorward instructions access", 0, 0,
		func(ctx context.Context, _ []string) error {
			reads, err := i.shelf.Access(ctx, i.by)
			if err != nil {
				return err
			}
			return i.o.print(reads, readsText(reads.Deliveries))
		})
}

// newCanary shows the delivery that a reference in a text is from.
func newCanary() *cobra.Command {
	i := newInstructor()
	return i.command("canary REF [--json]", "find the delivery that a reference in a text is from", "doorward instructions canary 0123456789abcdef", 1, 1,
		func(ctx context.Context, args []string) error {
			leak, err := i.shelf.Canary(ctx, i.by, strings.ToLower(strings.TrimSpace(args[0])))
			if err != nil {
				return err
			}
			return i.o.print(leak, leakText(leak))
		})
}
