// Command notes-server is a small MCP server that keeps notes. It is there to have something real behind Doorward in
// the first minute: every part of the protocol that it offers works, and nothing more is claimed.
//
// Usage: notes-server [FILE]
//
// With FILE the notes are kept in it, one JSON line for each change, and several processes may share it. Without FILE
// they are in memory and end with the process: under Doorward, which gives each session its own process unless told
// otherwise, that is the end of the session.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "notes-server: error:", err)
		os.Exit(1)
	}
}

// run serves standard input and output until either ends.
func run(args []string) error {
	if len(args) > 1 || len(args) == 1 && args[0] != "" && args[0][0] == '-' {
		return fmt.Errorf("usage: notes-server [FILE]")
	}
	b := &book{}
	if len(args) == 1 {
		b.path = args[0]
	}
	if _, err := b.list(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newServer(b).Run(ctx, &mcp.StdioTransport{})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
