package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/downstream/credential"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// sessionHooks returns the events at which a hook's text reaches the model, by the
// names that Claude Code, Codex and Gemini CLI give them.
func sessionHooks() []string { return []string{"SessionStart", "SubagentStart"} }

// guidanceText is shown to a model whose client now has a session. It is not guidance itself.
const guidanceText = "Guidance from Doorward is available to this session: call the tool instructions__read."

// newSessionStart returns the command that opens a session for the agent whose hook, or
// step of CI, runs it, and writes it to a file. The command never fails (see
// harmlessCommand): without a session only guidance is missing.
func newSessionStart() *cobra.Command {
	o := newInvocation()
	project := o.set.String("project", "", "project label, instead of the directory's")
	return o.harmlessCommand("session-start [--project NAME] [--json]", "start a session, from a client's hook", func(ctx context.Context) error {
		event := readHook(ctx, stdin())
		k, err := guidance{o}.keeper(ctx)
		if err != nil {
			return err
		}
		f, kept, err := k.ensure(ctx, projectOf(*project, event.CWD))
		if err != nil {
			return err
		}
		if kept != nil { // without a file no program can use the session
			return errors.Join(kept, k.client.EndSession(ctx, f.Token))
		}
		d, err := k.client.Delivery(ctx, f.Token)
		return errors.Join(err, guidance{o}.started(stdout(), event, f, d))
	})
}

// started reports that there is a session, in the form that the event requires, without the token.
func (g guidance) started(out io.Writer, event hookEvent, f credential.File, d client.Delivery) error {
	switch {
	case slices.Contains(sessionHooks(), event.Name) && d.State == "full" && d.Store != "unused":
		return json.NewEncoder(out).Encode(map[string]any{"hookSpecificOutput": map[string]string{
			"hookEventName": event.Name, "additionalContext": guidanceText}})
	case event.Name != "":
		return nil
	case g.o.json:
		return json.NewEncoder(out).Encode(map[string]any{"session_id": f.SessionID, "expires": f.Expires.UTC().Format(time.RFC3339), "scope": d.Scope, "state": d.State})
	}
	fmt.Fprintf(stderr(), "doorward: session %s until %s\n", f.SessionID, f.Expires.Local().Format(time.RFC3339))
	return nil
}

// newSessionEnd returns the command that ends the sessions that session-start has opened
// for the same agent.
func newSessionEnd() *cobra.Command {
	o := newInvocation()
	return o.harmlessCommand("session-end [--json]", "end the session, from a client's hook", func(ctx context.Context) error {
		readHook(ctx, stdin())
		k, err := guidance{o}.keeper(ctx)
		if err != nil {
			return err
		}
		return k.end(ctx)
	})
}

// harmlessCommand returns a command for a client's hook. It always exits with 0 and within
// a time limit: some clients take any other result as a refusal of the session or the
// user's prompt.
func (o *invocation) harmlessCommand(use, short string, f func(context.Context) error) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	c := o.command(use, short, "doorward auth "+name, 0, many, func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			f = func(context.Context) error { return errUsage }
		}
		harmless(ctx, f)
		return nil
	})
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		harmless(context.Background(), func(context.Context) error { return fmt.Errorf("%w: %w", errUsage, err) })
		return nil
	})
	return c
}

func harmless(ctx context.Context, f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil { // otherwise the runtime exits with 2, on which clients refuse
				done <- errors.New("the hook failed")
			}
		}()
		done <- f(ctx)
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(hookTime + time.Second): // f may block in the file system
		err = context.DeadlineExceeded
	}
	if err != nil {
		fmt.Fprintf(stderr(), "doorward: no session: %v\n", err)
	}
}

// projectOf returns the label of the project that a client works on: the given one,
// or that of the directory dir, or that of the working directory.
func projectOf(given, dir string) string {
	if client.ValidNamespace(given) {
		return given
	}
	if filepath.IsAbs(dir) {
		if label, err := client.Namespace(dir); err == nil {
			return label
		}
	}
	label, _ := namespaceOf("")
	return label
}

// sessionKeeper opens and ends the session of one agent.
type sessionKeeper struct {
	client *client.Client
	dir    string       // the directory of session files
	agent  peer.Process // the process whose end ends the session; no Instance: it is not known
	apart  bool         // the agent was started by the daemon in another PID namespace
}

func (g guidance) keeper(ctx context.Context) (*sessionKeeper, error) {
	dir, err := g.o.sessionDir()
	if err != nil {
		return nil, err
	}
	above, err := peer.Above()
	if err != nil {
		above = nil // then the agent's process is not known; see open
	}
	c, err := g.o.daemon.connect()
	if err != nil {
		return nil, err
	}
	k := &sessionKeeper{client: c, dir: dir, agent: agentOf(above)}
	if os.Getenv("DOORWARD_TOKEN_FILE") != "" {
		// An error means that there is no daemon, and then no session is opened.
		if k.apart, _ = c.Apart(ctx); k.apart {
			k.agent.Instance = ""
		}
	}
	return k, nil
}

// errNoAgent is the error if the agent's process is not known: the session would end with
// this command.
var errNoAgent = errors.New("the process that the session belongs to cannot be determined: check that /proc is readable")

// between returns the names of programs between an agent and its hook. Names have at
// most 15 characters, as in the kernel.
func between() []string {
	return []string{"sh", "dash", "bash", "zsh", "fish", "ksh", "ash", "csh", "tcsh", "env", "busybox", "timeout", "nice", "nohup", "setsid", "doorward"}
}

// beyond returns the names of programs above all agents, which run until the system or the
// container stops; a session bound to one of them would not end.
func beyond() []string {
	return []string{"systemd", "init", "tini", "dumb-init", "docker-init", "launchd"}
}

// agentOf selects the process whose end ends the session: the nearest process above
// this one that is not in between, or otherwise the outermost of those, which is the shell
// of a terminal or a script. A wrong choice can only make the session end earlier.
func agentOf(above []peer.Process) peer.Process {
	var outermost peer.Process
	for _, p := range above {
		if slices.Contains(beyond(), p.Name) {
			break
		}
		if !slices.Contains(between(), p.Name) {
			return p
		}
		outermost = p
	}
	return outermost
}

// mine reports whether a session file belongs to the same agent.
func (k *sessionKeeper) mine(bind string) bool { return bind == k.agent.Instance }

// enough is the remaining lifetime above which a session is reused.
const enough = time.Hour

// ensure returns the agent's session: the existing one, as after a resume or
// a compaction, or a new one. kept is the error of writing the file of a new one.
func (k *sessionKeeper) ensure(ctx context.Context, project string) (f credential.File, kept, err error) {
	before, _, none := credential.Find(k.dir, k.mine)
	if none == nil && time.Until(before.Expires) > enough {
		if _, err := k.client.Delivery(ctx, before.Token); err == nil {
			return before, nil, nil
		}
	}
	if f, err = k.open(ctx, project); err != nil {
		return f, nil, err
	}
	if _, kept = credential.Write(k.dir, f); kept == nil && none == nil { // the old session is not needed any more
		_ = k.client.EndSession(ctx, before.Token)
		_ = credential.Remove(k.dir, before.SessionID)
	}
	return f, kept, nil
}

// open opens a session. The session of a contained agent that the daemon started
// needs no binding to a process: it belongs to the agent's principal, which exists only in
// the agent's process tree and until its end.
func (k *sessionKeeper) open(ctx context.Context, project string) (credential.File, error) {
	if k.agent.Instance == "" && !k.apart && runtime.GOOS == "linux" { // other systems have no bindings
		return credential.File{}, errNoAgent
	}
	claims := client.SessionClaims{Project: project, Bind: k.agent.Instance}
	if k.agent.Name != "" {
		claims.Client = &client.ClientName{Name: k.agent.Name}
	}
	s, err := k.client.OpenSession(ctx, claims)
	if err != nil {
		return credential.File{}, deliveryFailure(err)
	}
	return credential.File{Token: s.Token, SessionID: s.ID, Bind: k.agent.Instance, Expires: s.Expires}, nil
}

// maxOwn is the most sessions of one agent that end ends; usually there is one.
const maxOwn = 16

// end ends the agent's sessions and removes their files. The files are also removed if the
// daemon does not end a session, because it does so when the agent ends.
func (k *sessionKeeper) end(ctx context.Context) error {
	var problem error
	for range maxOwn {
		f, _, err := credential.Find(k.dir, k.mine)
		if errors.Is(err, credential.ErrNone) {
			return problem
		}
		if err != nil {
			return err
		}
		if err := k.client.EndSession(ctx, f.Token); err != nil && !errors.Is(err, client.ErrNoDaemon) {
			problem = deliveryFailure(err)
		}
		if err := credential.Remove(k.dir, f.SessionID); err != nil {
			return err
		}
	}
	return problem
}
