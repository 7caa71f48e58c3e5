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

// sessionHooks are the events at which a text of ours reaches the model, by the
// names that Claude Code, Codex and Gemini CLI give them.
func sessionHooks() []string { return []string{"SessionStart", "SubagentStart"} }

// guidanceText is said to a model whose client has a session now. It is no
// guidance itself.
const guidanceText = "Guidance from Doorward is available to this session: call the tool instructions__read."

// newSessionStart makes a session for the agent whose hook this is, or whose step
// of CI, and keeps it in a file. It ends well whatever happens, and in time:
// without a session guidance is missing, and nothing else.
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
		if kept != nil { // then it is of no use to anybody
			return errors.Join(kept, k.client.EndSession(ctx, f.Token))
		}
		d, err := k.client.Delivery(ctx, f.Token)
		return errors.Join(err, guidance{o}.started(stdout(), event, f, d))
	})
}

// started says that there is a session, in the form that reaches whom it is
// for, and nothing that is secret.
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

// newSessionEnd ends what newSessionStart made for the same agent.
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

// harmlessCommand runs what a client's hook runs: it ends with 0 and within time
// whatever happens, since to some clients anything else means that the session
// or the user's prompt is refused.
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
			if r := recover(); r != nil { // the runtime would exit with 2, which refuses
				done <- errors.New("the hook failed")
			}
		}()
		done <- f(ctx)
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(hookTime + time.Second): // a file system may hang
		err = context.DeadlineExceeded
	}
	if err != nil {
		fmt.Fprintf(stderr(), "doorward: no session: %v\n", err)
	}
}

// projectOf is the label of the project that a client works on: the given one,
// or that of the directory it claims, or that of the working directory.
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

// sessionKeeper makes and ends the session of one agent.
type sessionKeeper struct {
	client *client.Client
	dir    string       // the runtime directory
	agent  peer.Process // whose end is the session's; no Instance: it cannot be told
	apart  bool         // the agent was started by the daemon, and has names of its own for processes
}

func (g guidance) keeper(ctx context.Context) (*sessionKeeper, error) {
	dir, err := g.o.sessionDir()
	if err != nil {
		return nil, err
	}
	above, err := peer.Above()
	if err != nil {
		above = nil // the daemon binds it to what it sees itself
	}
	c, err := g.o.daemon.connect()
	if err != nil {
		return nil, err
	}
	k := &sessionKeeper{client: c, dir: dir, agent: agentOf(above)}
	if os.Getenv("DOORWARD_TOKEN_FILE") != "" {
		// Without a daemon it is as well not to know: nothing follows.
		if k.apart, _ = c.Apart(ctx); k.apart {
			k.agent.Instance = ""
		}
	}
	return k, nil
}

// errNoAgent: a session would end with this command, before anybody used it.
var errNoAgent = errors.New("the process that the session belongs to cannot be determined: is /proc readable?")

// between are programs that stand between an agent and its hook. Names have at
// most 15 characters, as the kernel keeps them.
func between() []string {
	return []string{"sh", "dash", "bash", "zsh", "fish", "ksh", "ash", "csh", "tcsh", "env", "busybox", "timeout", "nice", "nohup", "setsid", "doorward"}
}

// beyond are programs that are above all others; a session bound to one of them
// would not be bound.
func beyond() []string {
	return []string{"systemd", "init", "tini", "dumb-init", "docker-init", "launchd"}
}

// agentOf selects the process that a session ends with: the nearest process above
// this one that is not a shell, or else the outermost shell, which is a
// terminal's or a script's. The choice is a guess, and can only make the session
// end earlier.
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

// mine reports whether a session file is of the same agent.
func (k *sessionKeeper) mine(bind string) bool { return bind == k.agent.Instance }

// enough is how long a session must be good for to be kept.
const enough = time.Hour

// ensure returns the agent's session: the one that there is, as after a resume or
// a compaction, or a new one. kept is why a new one is in no file.
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
	if _, kept = credential.Write(k.dir, f); kept == nil && none == nil { // the old one is not needed any more
		_ = k.client.EndSession(ctx, before.Token)
		_ = credential.Remove(k.dir, before.SessionID)
	}
	return f, kept, nil
}

// open makes a session. The session of a contained agent that the daemon started
// is not bound to a process by name, and needs no binding: it belongs to the
// agent's principal, which exists only in the agent's process tree and until its
// end.
func (k *sessionKeeper) open(ctx context.Context, project string) (credential.File, error) {
	if k.agent.Instance == "" && !k.apart && runtime.GOOS == "linux" { // elsewhere nothing is bound
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

// maxOwn bounds how many sessions of one agent are ended at once; there is one.
const maxOwn = 16

// end ends the agent's sessions, and removes their files also where the daemon
// cannot be told: it ends them with the agent.
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
