package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/upstream/process"
)

// newDocumentEdit returns the command that replaces this process by the operator's editor
// with a document's file. The daemon notices the change in the directory.
func newDocumentEdit() *cobra.Command {
	i := newInstructor()
	version := i.o.set.String("version", "", "the beginning of a version, where a name has several audiences")
	return i.o.command("edit NAME [--version V]", "open a document in the editor", "EDITOR=nano doorward instructions edit review", 1, 1,
		func(ctx context.Context, args []string) error {
			defer i.close()
			return i.edit(ctx, args[0], *version)
		})
}

func (i *instructor) edit(ctx context.Context, name, version string) error {
	editor, err := editorCommand()
	if err != nil {
		return err
	}
	dir, err := instructionsDir(i.o)
	if err != nil {
		return err
	}
	if err := i.open(ctx); err != nil {
		return err
	}
	all, err := i.shelf.Versions(ctx, i.by, name)
	if err != nil {
		return storeFailure(err)
	}
	file, err := fileOf(all.Versions, version)
	if err != nil {
		return err
	}
	i.close() // Exec does not return
	err = syscall.Exec(editor[0], append(editor, filepath.Join(dir, file)), os.Environ())
	return fmt.Errorf("starting %s: %w", editor[0], err)
}

// editorCommand returns the editor that the environment names, with its arguments.
func editorCommand() ([]string, error) {
	words := strings.Fields(cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi"))
	if len(words) == 0 {
		return nil, fail(exitFailed, "VISUAL or EDITOR is blank")
	}
	program, err := process.Resolve(words[0], os.Getenv("PATH"))
	if err != nil {
		return nil, fmt.Errorf("finding the editor: %w", err)
	}
	words[0] = program
	return words, nil
}

// fileOf returns the file of a document. version, the beginning of a version, selects one
// if there are several.
func fileOf(versions []deliver.VersionInfo, version string) (string, error) {
	var files []string
	for _, v := range versions {
		if v.File != "" && strings.HasPrefix(v.Version, version) && !slices.Contains(files, v.File) {
			files = append(files, v.File)
		}
	}
	switch len(files) {
	case 0:
		return "", fail(exitFailed, "no file in the directory contains it")
	case 1:
		return files[0], nil
	}
	return "", fail(exitFailed, "it has several audiences, each with its own file: choose one with --version: %s", plaintext.Line(strings.Join(files, ", ")))
}
