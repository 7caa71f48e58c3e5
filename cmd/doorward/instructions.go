package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
)

// newInstructions returns the commands of the operator for instruction delivery. A running
// daemon does the acts, and refuses them to the shells of agents; without a daemon the
// commands use the store directly.
func newInstructions() *cobra.Command {
	return group("instructions", "manage the documents delivered to sessions: versions, labels, readers",
		newDocumentList(), newDocumentShow(), newDocumentDiff(), newDocumentVerify(), newPromote(), newRollback(),
		newDocumentRevoke(), newDocumentEdit(), newDocumentImport(), newAccess(), newCanary())
}

// newDocumentList returns the command that lists the documents, or the versions of one.
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

// newDocumentShow returns the command that prints a document, byte for byte as its file.
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

// newDocumentDiff returns the command that shows the difference between two versions; see
// pairOf for the default.
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

// two returns the versions to compare: those that refs names, production in place of a
// missing second one, or pairOf without any.
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

// pairOf returns the versions to compare by default: production and the newest version
// after it, or, if there is none, the version before production and production. The other
// version has the same audience as production and is not revoked.
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

// newAccess returns the command that lists the deliveries.
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

// newCanary returns the command that shows the delivery of a watermark.
func newCanary() *cobra.Command {
	i := newInstructor()
	return i.command("canary REF [--json]", "find the delivery to which a reference in a text belongs", "doorward instructions canary dwi-abcdefghij234567", 1, 1,
		func(ctx context.Context, args []string) error {
			leak, err := i.shelf.Canary(ctx, i.by, strings.ToLower(strings.TrimSpace(args[0])))
			if err != nil {
				return err
			}
			return i.o.print(leak, leakText(leak))
		})
}
