package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
)

// verified is what `instructions verify --json` prints, as `check --json` does.
type verified struct {
	OK        bool          `json:"ok"`
	Documents int           `json:"documents"`
	Problems  []fileProblem `json:"problems"`
}

type fileProblem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Problem string `json:"problem"`
	Warning bool   `json:"warning,omitempty"`
}

// newDocumentVerify returns the command that checks documents without a daemon and without
// the store: a directory as the daemon reads it, or one file.
func newDocumentVerify() *cobra.Command {
	o := newInvocation()
	return o.command("verify [DIR|FILE] [--json]", "check documents", "doorward instructions verify instructions/", 0, 1,
		func(_ context.Context, args []string) error { return verifyDocuments(o, strings.Join(args, "")) })
}

func verifyDocuments(o *invocation, path string) (err error) {
	if path == "" {
		if path, err = instructionsDir(o); err != nil {
			return err
		}
	}
	docs, problems, err := documents(path)
	if err != nil {
		return err
	}
	v := verifiedOf(docs, problems)
	text := ""
	if v.OK {
		text = fmt.Sprintf("ok: %d documents\n", v.Documents)
	}
	if !o.json {
		sayDocuments(problems)
	}
	if err := o.print(v, text); err != nil || v.OK {
		return err
	}
	return &failure{status: exitFailed, err: errors.New("the documents have problems"), quiet: true}
}

// sayDocuments prints the problems of documents.
func sayDocuments(problems document.Problems) {
	for _, p := range problems {
		fmt.Fprintln(stderr(), plaintext.Line(p.String()))
	}
}

func verifiedOf(docs []*document.Document, problems document.Problems) verified {
	v := verified{OK: true, Documents: len(docs), Problems: []fileProblem{}}
	for _, p := range problems {
		v.OK = v.OK && p.Warning
		v.Problems = append(v.Problems, fileProblem{p.File, p.Line, p.Text, p.Warning})
	}
	return v
}

// documents reads a directory or a file and checks its content. The includes of
// a single file are not checked.
func documents(path string) ([]*document.Document, document.Problems, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if fi.IsDir() {
		docs, problems, err := library.Scan(path)
		if err != nil {
			return nil, nil, err
		}
		_, more := document.NewSet(docs)
		return docs, append(problems, more...), nil
	}
	content, err := readDocument(path)
	if err != nil {
		return nil, nil, err
	}
	d, problems := parsed(path, content)
	if d == nil {
		return nil, problems, nil
	}
	return []*document.Document{d}, nil, nil
}

// parsed returns the document in content, or its problems.
func parsed(file string, content []byte) (*document.Document, document.Problems) {
	d, err := document.Parse(file, content)
	var problems document.Problems
	switch {
	case err == nil:
		return d, nil
	case encrypted(content):
		return nil, document.Problems{{File: file, Line: 1, Text: "this is encrypted: decrypt it into a pipe, as in `age -d FILE | doorward instructions import -`, or sops -d"}}
	case errors.As(err, &problems):
		return nil, problems
	}
	return nil, document.Problems{{File: file, Line: 1, Text: err.Error()}}
}

// encrypted reports whether content looks like the output of age or SOPS. It is used only
// for a better error.
func encrypted(content []byte) bool {
	return bytes.HasPrefix(content, []byte("age-encryption.org/")) || bytes.HasPrefix(content, []byte("-----BEGIN AGE ENCRYPTED FILE-----")) ||
		bytes.Contains(content, []byte("ENC[AES256_GCM,")) && bytes.Contains(content, []byte("sops"))
}

func readDocument(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readContent(f)
}

// readContent reads a document, at most one byte more than the limit, so that the check of
// a longer one fails.
func readContent(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, document.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading a document: %w", err)
	}
	return b, nil
}

// instructionsDir returns the directory of documents in the configuration.
func instructionsDir(o *invocation) (string, error) {
	c, err := configured(o.options)
	if err != nil {
		return "", err
	}
	if c.Instructions.URL != "" {
		return "", fail(exitFailed, "the documents come from another Doorward (instructions.url): there is no directory")
	}
	return c.Instructions.Dir, nil
}

// imported is what `instructions import --json` prints.
type imported struct {
	Imported  []deliver.VersionInfo `json:"imported"`
	Unchanged []string              `json:"unchanged"` // names of documents that existed already
}

// draft is a document to import.
type draft struct {
	doc     *document.Document
	content []byte
}

// newDocumentImport returns the command that writes documents to the instruction
// directory. All are checked before the first is written; an existing document is replaced
// only on request.
func newDocumentImport() *cobra.Command {
	i := newInstructor()
	replace := i.o.set.Bool("replace", false, "replace documents of the same name and audience")
	return i.o.command("import DIR|FILE|- [--replace] [--json]", "import documents", "doorward instructions import ~/prompts", 1, 1,
		func(ctx context.Context, args []string) error {
			defer i.close()
			return i.importAll(ctx, args[0], *replace)
		})
}

func (i *instructor) importAll(ctx context.Context, from string, replace bool) error {
	g, err := gather(from, os.Stdin)
	if err != nil {
		return err
	}
	sayDocuments(g.problems)
	switch {
	case len(g.problems) > 0:
		return fail(exitFailed, "nothing was imported: %d problems", len(g.problems))
	case len(g.drafts) == 0:
		return fail(exitFailed, "%s contains no documents, which are files ending in .md", plaintext.Line(from))
	}
	if err := i.open(ctx); err != nil {
		return err
	}
	return i.put(ctx, g.drafts, replace)
}

// put writes the drafts that are new or, with replace, different.
func (i *instructor) put(ctx context.Context, drafts []draft, replace bool) error {
	all, err := i.shelf.List(ctx, i.by)
	if err != nil {
		return storeFailure(err)
	}
	fresh, unchanged, taken := sorted(drafts, all.Templates)
	if len(taken) > 0 && !replace {
		return fail(exitFailed, "nothing was imported: documents of these names and audiences exist; use --replace to replace them: %s", strings.Join(taken, ", "))
	}
	out := imported{Imported: []deliver.VersionInfo{}, Unchanged: unchanged}
	for _, d := range fresh {
		v, err := i.shelf.Put(ctx, i.by, d.doc.Name, string(d.content), "")
		if err != nil {
			return errors.Join(storeFailure(err), i.o.print(out, importedText(out)))
		}
		out.Imported = append(out.Imported, *v)
	}
	return i.o.print(out, importedText(out))
}

// sorted separates the drafts into fresh ones and those that the directory has already.
// taken holds the names of fresh ones that would replace a document.
func sorted(drafts []draft, there []deliver.VersionInfo) (fresh []draft, unchanged, taken []string) {
	unchanged = []string{}
	for _, d := range drafts {
		n := slices.IndexFunc(there, func(v deliver.VersionInfo) bool {
			return v.File != "" && v.Name == d.doc.Name && v.Variant == d.doc.Variant()
		})
		switch {
		case n >= 0 && there[n].Version == d.doc.Version:
			unchanged = append(unchanged, d.doc.Name)
			continue
		case n >= 0:
			taken = append(taken, d.doc.Name)
		}
		fresh = append(fresh, d)
	}
	return fresh, unchanged, taken
}

func importedText(out imported) string {
	var b strings.Builder
	for _, v := range out.Imported {
		fmt.Fprintf(&b, "%s: imported as %s\n", oneWord(v.Name), short(v.Version))
	}
	for _, name := range out.Unchanged {
		fmt.Fprintf(&b, "%s: already present\n", oneWord(name))
	}
	return b.String()
}

// gathering holds the documents to import, and their problems.
type gathering struct {
	drafts   []draft
	problems document.Problems
}

func (g *gathering) add(file string, content []byte) {
	d, wrong := parsed(file, content)
	g.problems = append(g.problems, wrong...)
	if d == nil {
		return
	}
	if slices.ContainsFunc(g.drafts, func(o draft) bool { return o.doc.Name == d.Name && o.doc.Variant() == d.Variant() }) {
		g.problems = append(g.problems, document.Problem{File: file, Line: 1, Text: "another file has the same name and audience"})
	}
	g.drafts = append(g.drafts, draft{d, content})
}

// gather reads stdin, a file, or the documents of a directory. The directory may
// have any owner, so the daemon's rules for its own directory do not apply.
func gather(from string, stdin io.Reader) (*gathering, error) {
	g := &gathering{}
	if from == "-" {
		content, err := readContent(stdin)
		if err == nil {
			g.add("stdin", content)
		}
		return g, err
	}
	files, err := documentFiles(from)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := readDocument(file)
		if err != nil {
			return nil, err
		}
		g.add(file, content)
	}
	return g, nil
}

// documentFiles returns the path of a file, or the documents of a directory.
func documentFiles(path string) ([]string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if e.Type().IsRegular() && filepath.Ext(e.Name()) == ".md" && e.Name()[0] != '.' {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}
