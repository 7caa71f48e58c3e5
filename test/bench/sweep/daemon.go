//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/process"
)

// daemon is the measured program, with short leases and with limits that the agents do not reach.
type daemon struct {
	program, dir string
	cmd          *exec.Cmd
}

func (d *daemon) config() string  { return filepath.Join(d.dir, "doorward.yaml") }
func (d *daemon) state() string   { return filepath.Join(d.dir, "state") }
func (d *daemon) runtime() string { return filepath.Join(d.dir, "run") }

const settings = `listen: {unix: auto, http: []}
agent: {lease: 10s, attempts: 100, mailbox_messages: 100000, sender_messages: 100000, sends_per_minute: 100000}
limits: {calls_per_second: 100000, calls_per_principal: 100000}
`

func (d *daemon) start() error {
	if err := os.WriteFile(d.config(), []byte(settings), 0o600); err != nil {
		return err
	}
	d.cmd = exec.Command(d.program, "serve", "--config", d.config(), "--state-dir", d.state(), "--runtime-dir", d.runtime())
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir}
	err := errors.New("the daemon does not say that it is ready")
	out, pipe := d.cmd.StderrPipe()
	if e := errors.Join(pipe, d.cmd.Start()); e != nil {
		return e
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			go func() {
				for lines.Scan() {
					fmt.Println("daemon:", lines.Text())
				}
			}()
			return nil
		}
		err = errors.Join(err, errors.New(lines.Text()))
	}
	return err
}

func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.cmd.Wait()
}

// processor returns the processor time that the daemon has used, in the resolution of /proc.
func (d *daemon) processor() time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(b), ") ")
	var skip string
	var user, system int64
	_, _ = fmt.Sscan(after, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &user, &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// agent is a registered session of the server agent through its own "doorward connect".
type agent struct{ upstream.Conn }

// agents starts the programs of agents.
var agents = sync.OnceValues(func() (*process.Runner, error) { return process.NewRunner(process.Options{}) })

func (d *daemon) join(ctx context.Context, name string) (*agent, error) {
	runner, err := agents()
	if err != nil {
		return nil, err
	}
	program, err := filepath.Abs(d.program)
	if err != nil {
		return nil, err
	}
	bridge, err := upstream.New(upstream.Definition{Name: name, Kind: upstream.KindStdio, Path: program, Env: os.Environ(),
		Args: []string{"connect", "agent", "--config", d.config(), "--state-dir", d.state(), "--runtime-dir", d.runtime()},
	}, upstream.Deps{Runner: runner})
	if err != nil {
		return nil, err
	}
	conn, _, err := bridge.DialLegacy(ctx, []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"sweep","version":"1"}}`), nil)
	if err != nil {
		return nil, fmt.Errorf("connecting %s: %w", name, err)
	}
	a := &agent{conn}
	return a, a.use(ctx, "register", map[string]any{"name": name, "namespace": "sweep"}, new(any))
}

// use calls a tool and decodes its result. It retries every second while the database is
// locked.
func (a *agent) use(ctx context.Context, tool string, args map[string]any, into any) error {
	params, err := json.Marshal(map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return fmt.Errorf("calling %s: %w", tool, err)
	}
	for {
		r, err := a.Call(ctx, &upstream.Request{Method: "tools/call", Params: params}, nil)
		if err == nil && r.Error != nil {
			err = r.Error
		}
		if err != nil {
			return fmt.Errorf("calling %s: %w", tool, err)
		}
		result := struct {
			StructuredContent json.RawMessage
			IsError           bool
		}{StructuredContent: json.RawMessage("null")} // a text has none
		if err := json.Unmarshal(r.Result, &result); err != nil {
			return fmt.Errorf("calling %s: %w", tool, err)
		}
		if !result.IsError {
			return json.Unmarshal(result.StructuredContent, into)
		}
		if !strings.Contains(string(result.StructuredContent), "STORE_UNAVAILABLE") {
			return fmt.Errorf("calling %s: %s", tool, result.StructuredContent)
		}
		time.Sleep(time.Second)
	}
}

// sent is the answer of the tool send.
type sent struct {
	ID string `json:"message_id"`
}

// inbox is the answer of the tool inbox.
type inbox struct {
	Messages []sent
	Notices  []struct {
		sent
		State string
	}
}

// model sends and confirms the message that the backlog copies, and returns its id.
func (d *daemon) model(ctx context.Context) (string, error) {
	from, err := d.join(ctx, "past-from")
	if err != nil {
		return "", err
	}
	to, err := d.join(ctx, "past-to")
	if err != nil {
		return "", err
	}
	var m sent
	none := map[string]any{}
	err = errors.Join(
		from.use(ctx, "send", map[string]any{"to": "past-to", "body": strings.Repeat("a message of the past ", 10)}, &m),
		to.use(ctx, "inbox", none, new(any)), to.use(ctx, "inbox", none, new(any)))
	return m.ID, err
}

// expire sends messages that are never read, and records the delays of the notices of their
// expiry.
func (d *daemon) expire(ctx context.Context, into *late) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sender, err := d.join(ctx, "sender")
	if err != nil {
		return err
	}
	if _, err := d.join(ctx, "deaf"); err != nil {
		return err
	}
	var due sync.Map // the time at which a message expires, by its id
	failed := make(chan error, 2)
	go func() { failed <- sender.sendAll(ctx, &due) }()
	go func() { failed <- sender.notice(ctx, &due, into) }()
	err = <-failed
	cancel()
	return errors.Join(err, <-failed)
}

// sendAll sends five messages a second.
func (a *agent) sendAll(ctx context.Context, due *sync.Map) error {
	for {
		ttl := 60 + rand.IntN(20)
		var m sent
		if err := a.use(ctx, "send", map[string]any{"to": "deaf", "body": text(), "ttl_s": ttl}, &m); err != nil {
			return err
		}
		due.Store(m.ID, time.Now().Add(time.Duration(ttl)*time.Second))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second / 5):
		}
	}
}

// notice receives the notices of a sender.
func (a *agent) notice(ctx context.Context, due *sync.Map, into *late) error {
	for {
		var got inbox
		if err := a.use(ctx, "inbox", map[string]any{"wait_ms": 20_000, "format": "json"}, &got); err != nil {
			return err
		}
		for _, n := range got.Notices {
			if at, ok := due.LoadAndDelete(n.ID); ok && n.State == "expired" {
				into.add(time.Since(at.(time.Time)))
			}
		}
	}
}

// forget receives messages every 12 seconds without confirming them, so that their leases end.
func (d *daemon) forget(ctx context.Context) error {
	from, err := d.join(ctx, "giver")
	if err != nil {
		return err
	}
	to, err := d.join(ctx, "taker")
	if err != nil {
		return err
	}
	var first struct{ Cursor string }
	if err := to.use(ctx, "wait", map[string]any{"wait_ms": 0}, &first); err != nil {
		return err
	}
	for {
		for range 10 {
			if err := from.use(ctx, "send", map[string]any{"to": "taker", "body": text(), "ttl_s": 60}, new(any)); err != nil {
				return err
			}
		}
		if err := to.use(ctx, "inbox", map[string]any{"after": first.Cursor}, new(any)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(12 * time.Second):
		}
	}
}

// text returns a body that no earlier message had.
func text() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }
