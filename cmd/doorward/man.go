package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan returns the command that prints manual pages. They are generated from the help
// texts, so they need no files of their own.
func newMan() *cobra.Command {
	o := newInvocation()
	withoutJSON(o.options)
	dir := o.set.String("dir", "", "write the pages of all commands into this directory")
	return o.command("man [COMMAND…] [--dir D]", "print the manual page of a command", "doorward man audit tail | man -l -", 0, many,
		func(_ context.Context, args []string) error {
			root, header := newRoot(), &doc.GenManHeader{Section: "1", Source: "Doorward", Manual: "Doorward"}
			root.DisableAutoGenTag = true
			if *dir != "" {
				if err := os.MkdirAll(*dir, 0o755); err != nil {
					return fmt.Errorf("making the directory of --dir: %w", err)
				}
				return doc.GenManTree(root, header, *dir)
			}
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("%w: there is no such command", errUsage)
			}
			return doc.GenMan(c, header, stdout())
		})
}
