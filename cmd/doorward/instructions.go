package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/trust/plaintext"
)

const instructionsUsage = "instructions list|show|diff|verify|promote|rollback|revoke|edit|import|access|canary [arguments]"

// instructionsUsages are the commands for the documents that sessions get.
func instructionsUsages() map[string]string {
	return map[string]string{
		"list":     "list [NAME] [--json]",
		"show":     "show NAME [--version V | --label L] [--json]",
		"diff":     "diff NAME [V1 [V2]] [--json]",
		"verify":   "verify [DIR|FILE] [--json]",
		"promote":  "promote NAME [VERSION] [--label L] [--json]",
		"rollback": "rollback NAME [--json]",
		"revoke":   "revoke NAME [VERSION] [--json]",
		"edit":     "edit NAME [--version V]",
		"import":   "import DIR|FILE|- [--replace] [--json]",
		"access":   "access [--json]",
		"canary":   "canary REF [--json]",
	}
}

// instructionsCommand is the operator's side of instruction delivery. With a
// daemon the acts are the daemon's, which refuses them to the shells of agents;
// without one they go to the store.
func instructionsCommand(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: one of %s", errUsage, strings.Join(slices.Sorted(maps.Keys(instructionsUsages())), ", "))
	}
	run := map[string]func(*instructor, context.Context, []string) error{
		"list": (*instructor).list, "show": (*instructor).show, "diff": (*instructor).diff, "verify": (*instructor).verify,
		"promote": (*instructor).promote, "rollback": (*instructor).rollback, "revoke": (*instructor).revoke,
		"edit": (*instructor).edit, "import": (*instructor).importAll, "access": (*instructor).access, "canary": (*instructor).canary,
	}[args[0]]
	if run == nil {
		return fmt.Errorf("%w: unknown command %q", errUsage, args[0])
	}
	i := &instructor{operator: &operator{options: newOptions("instructions " + args[0])}}
	err := run(i, ctx, args[1:])
	i.end()
	if errors.Is(err, errUsage) {
		err = fmt.Errorf("%w: doorward instructions %s", err, instructionsUsages()[args[0]])
	}
	return err
}

// instructionsOperator is what the commands need of the documents, from a
// daemon or from the store without one (instruct.Operator).
type instructionsOperator interface {
	// List gives each name and audience that is in the directory, bears a label
	// or waits, and what is wrong in the directory.
	List(ctx context.Context) (*deliver.Listing, error)
	// Versions are those of one name, newest first.
	Versions(ctx context.Context, name string) (*deliver.Versions, error)
	// Show gives one version with its text, the whole file. ref is a label or the
	// beginning of a version.
	Show(ctx context.Context, name, ref string) (*deliver.Shown, error)
	// Put writes a document into the directory.
	Put(ctx context.Context, name, content string) (*deliver.VersionInfo, error)
	// Promote gives a label, empty for production, to a version; empty: to what
	// the directory holds.
	Promote(ctx context.Context, name, version, label string) (*library.Act, error)
	Rollback(ctx context.Context, name string) (*library.Act, error)
	// Revoke withdraws one version, or with "" the name.
	Revoke(ctx context.Context, name, version string) (*library.Act, error)
	// Access is who read what, newest first.
	Access(ctx context.Context) (*deliver.Accessed, error)
	// Canary says which delivery a ref is from.
	Canary(ctx context.Context, ref string) (*deliver.Access, error)
}

// instructor is one run of a command.
type instructor struct {
	*operator
	shelf instructionsOperator
	close func()
}

// open finds the documents: at the daemon, or without one in the store.
func (i *instructor) open(ctx context.Context) error {
	if err := i.connect(); err != nil {
		return err
	}
	err := i.client.Reach(ctx)
	if errors.Is(err, client.ErrNoDaemon) {
		fmt.Fprintln(stderr(), "doorward: no daemon runs: this goes to the store itself")
		i.shelf, i.close, err = offlineInstructions(ctx, i.options)
		return err
	}
	i.shelf = shelfOfDaemon{i.operator}
	return err
}

func (i *instructor) end() {
	if i.close != nil {
		i.close()
		i.close = nil
	}
	if i.client != nil {
		i.client.Close()
	}
}

// list shows the documents, or the versions of one.
func (i *instructor) list(ctx context.Context, args []string) error {
	rest, err := i.parse(args)
	if err != nil || len(rest) > 1 {
		return errors.Join(errUsage, err)
	}
	if err := i.open(ctx); err != nil {
		return err
	}
	if len(rest) == 1 {
		versions, err := i.shelf.Versions(ctx, rest[0])
		if err != nil {
			return err
		}
		return i.print(versions, versionsText(versions.Versions))
	}
	all, err := i.shelf.List(ctx)
	if err != nil {
		return err
	}
	if !i.json {
		sayProblems(all)
	}
	return i.print(all, versionsText(all.Templates))
}

// sayProblems says what is wrong with the store.
func sayProblems(all *deliver.Listing) {
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

// show prints a document as its file is.
func (i *instructor) show(ctx context.Context, args []string) error {
	version := i.set.String("version", "", "the beginning of a version")
	label := i.set.String("label", "", "a label instead of production")
	rest, err := i.parse(args)
	if err != nil {
		return err
	}
	name, err := one(rest)
	if err != nil || *version != "" && *label != "" {
		return errUsage
	}
	if err := i.open(ctx); err != nil {
		return err
	}
	doc, err := i.shelf.Show(ctx, name, cmp.Or(*version, *label, library.Production))
	if err != nil {
		return err
	}
	return i.printExactly(doc, doc.Content)
}

// printExactly is print for a document: a file or a pipe gets every byte of it.
func (i *instructor) printExactly(v any, text string) error {
	if i.json {
		return i.print(v, text)
	}
	_, err := io.WriteString(exactly(), text)
	return err
}

// diff shows what differs between two versions: the second is production, or
// what waits to be, and the first what was before it.
func (i *instructor) diff(ctx context.Context, args []string) error {
	rest, err := i.parse(args)
	if err != nil || len(rest) < 1 || len(rest) > 3 {
		return errors.Join(errUsage, err)
	}
	if err := i.open(ctx); err != nil {
		return err
	}
	from, to, err := i.two(ctx, rest[0], rest[1:])
	if err != nil {
		return err
	}
	text := unified(rest[0]+"@"+short(from.Version), rest[0]+"@"+short(to.Version), from.Content, to.Content)
	return i.printExactly(map[string]string{"name": rest[0], "from": from.Version, "to": to.Version, "diff": text}, text)
}

// two are the versions that a diff is of.
func (i *instructor) two(ctx context.Context, name string, refs []string) (from, to *deliver.Shown, err error) {
	switch len(refs) {
	case 0:
		all, err := i.shelf.Versions(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		if refs, err = pairOf(all.Versions); err != nil {
			return nil, nil, err
		}
	case 1:
		refs = []string{refs[0], library.Production}
	}
	if from, err = i.shelf.Show(ctx, name, refs[0]); err != nil {
		return nil, nil, err
	}
	to, err = i.shelf.Show(ctx, name, refs[1])
	return from, to, err
}

// pairOf chooses what a diff without versions is of: production and the newest
// version that waits, or, where none waits, what was before production.
func pairOf(versions []deliver.VersionInfo) ([]string, error) {
	p := slices.IndexFunc(versions, func(v deliver.VersionInfo) bool { return slices.Contains(v.Labels, library.Production) })
	if p < 0 {
		return nil, fail(exitFailed, "no version is production: name two")
	}
	same := func(v deliver.VersionInfo) bool { return v.Variant == versions[p].Variant && v.Revoked == "" }
	if n := slices.IndexFunc(versions[:p], same); n >= 0 {
		return []string{versions[p].Version, versions[n].Version}, nil
	}
	n := slices.IndexFunc(versions[p+1:], same)
	if n < 0 {
		return nil, fail(exitFailed, "there is one version only")
	}
	return []string{versions[p+1+n].Version, versions[p].Version}, nil
}

// access shows who read what.
func (i *instructor) access(ctx context.Context, args []string) error {
	rest, err := i.parse(args)
	if err != nil || len(rest) > 0 {
		return errors.Join(errUsage, err)
	}
	if err := i.open(ctx); err != nil {
		return err
	}
	reads, err := i.shelf.Access(ctx)
	if err != nil {
		return err
	}
	return i.print(reads, readsText(reads.Deliveries))
}

// canary says who got the text that a ref is from.
func (i *instructor) canary(ctx context.Context, args []string) error {
	rest, err := i.parse(args)
	if err != nil {
		return err
	}
	ref, err := one(rest)
	if err != nil {
		return err
	}
	if err := i.open(ctx); err != nil {
		return err
	}
	leak, err := i.shelf.Canary(ctx, strings.ToLower(strings.TrimSpace(ref)))
	if err != nil {
		return err
	}
	return i.print(leak, leakText(leak))
}
