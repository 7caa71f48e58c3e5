// Doorward stands between AI agents and the MCP servers they use: it knows
// who is calling, decides what they may do, carries the call, and keeps a
// record. This command is the daemon and everything a person does with it.
//
// Data goes to stdout, talk to stderr. Exit status: 0 done, 1 failed, 2 wrong
// usage, 3 refused, 4 no daemon.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/upstream/process"
)

// The exit statuses of the contract.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitAway    = 4
)

// version is set by the release build.
var version = "0.1.0-dev"

// command is one subcommand. run gets the arguments after its name.
type command struct {
	usage, help string
	run         func(ctx context.Context, args []string) error
}

func commands() map[string]command {
	return map[string]command{
		"serve":        {"serve [--config F] [--token-file F] [--dev]", "run the daemon", serve},
		"connect":      {"connect [SERVER] [--namespace NAME] [--channel]", "stdio <-> daemon, for clients that start a command", connect},
		"tools":        {"tools [SERVER] [--json]", "what the caller can use", tools},
		"call":         {"call SERVER TOOL [key=value… | --args JSON]", "call one tool", call},
		"status":       {"status [--wait 10s] [--json]", "listeners, servers, what is enforced", status},
		"check":        {"check [--json]", "check the configuration without starting", check},
		"allow":        {"allow [--yes] [--revoke]", "show what the doorward.yaml of this directory runs, and trust it as it is now", allow},
		"schema":       {"schema", "print the JSON Schema of doorward.yaml", schema},
		"version":      {"version", "print the version", printVersion},
		"whoami":       {"whoami [--json]", "what the daemon knows of this caller, each fact with its grade", whoami},
		"explain":      {"explain --as P ACTION RESOURCE [--args JSON] [--local] [--confirmed]", "the decision and the rule behind it", explain},
		"policy":       {"policy", "print the policy in force, as Cedar", policyCommand},
		"login":        {"login SERVER | --list [--json]", "sign in to a server that asks for OAuth", login},
		"logout":       {"logout SERVER", "forget a sign-in", logout},
		"trust":        {"trust [SERVER] [--yes] [--json]", "show and approve what a server offers", trust},
		"token":        {"token new NAME [--scope S] [--expires 720h] [--overlap 24h] | list | revoke NAME|ID", "bearer tokens for TCP listeners", token},
		"agent":        {agentUsage, "the mail of agents: who is registered, what waits, what is held", agentCommand},
		"auth":         {authUsage, "sessions of instruction delivery: for hooks, for CI, and what is wrong with them", authCommand},
		"instructions": {instructionsUsage, "the documents that sessions get: versions, labels, who read them", instructionsCommand},
		"audit":        {"audit tail|verify [--accept]|export", "read and check the record", auditCommand},
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "child-supervisor" {
		os.Exit(process.Supervise(os.Args[2:]))
	}
	// net/http logs there, in its own words, what an upstream sends unasked.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage()
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	c, ok := commands()[args[0]]
	if !ok {
		fmt.Fprintf(stderr(), "doorward: error: unknown command %q\ndoorward: hint: doorward help lists the commands\n", args[0])
		return exitUsage
	}
	return report(c, c.run(ctx, args[1:]))
}

// failure is an error with its exit status. With quiet there is nothing left
// to say.
type failure struct {
	status int
	err    error
	quiet  bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(status int, format string, a ...any) error {
	return &failure{status: status, err: fmt.Errorf(format, a...)}
}

var (
	errUsage       = errors.New("wrong usage")
	errNoTokenFile = fmt.Errorf("%w: --token-file names no file", errUsage)
)

// report says what went wrong and chooses the exit status.
func report(c command, err error) int {
	var f *failure
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		sayError(err)
		fmt.Fprintf(stderr(), "doorward: hint: doorward %s\n", c.usage)
		return exitUsage
	case errors.As(err, &f):
		if !f.quiet {
			sayError(f.err)
		}
		return f.status
	}
	sayError(err)
	if errors.Is(err, client.ErrNoDaemon) {
		fmt.Fprintln(stderr(), "doorward: hint: start it with `doorward serve`")
		return exitAway
	}
	if errors.Is(err, client.ErrNotOurs) {
		fmt.Fprintln(stderr(), "doorward: hint: name the state directory of the daemon that you mean with --state-dir or DOORWARD_STATE_DIR, and look at who listens there")
	}
	return exitFailed
}

// sayError indents the further lines of an error, so that none of them can be
// taken for a line of ours.
func sayError(err error) {
	fmt.Fprintf(stderr(), "doorward: error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
}

func usage() {
	all := commands()
	names := make([]string, 0, len(all))
	for n := range all {
		names = append(names, n)
	}
	sort.Strings(names)
	var b strings.Builder
	b.WriteString("usage: doorward COMMAND [arguments]\n\n")
	for _, n := range names {
		fmt.Fprintf(&b, "  %-48s %s\n", all[n].usage, all[n].help)
	}
	b.WriteString("\nexample:\n  doorward serve &\n  doorward tools\n  doorward call notes add_note text=hello\n")
	fmt.Fprint(stderr(), b.String())
}

func printVersion(context.Context, []string) error {
	fmt.Fprintln(stdout(), "doorward", version)
	return nil
}
