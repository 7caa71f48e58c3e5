//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"sync/atomic"
)

// console is an open page of the web console. It makes the requests of a browser: it listens to the
// stream of changes and fetches the part that has changed.
type console struct {
	client *http.Client
	base   string // http://localhost:PORT/ui/
	end    context.CancelFunc
	over   chan error
	parts  atomic.Int64
}

// consolePart is the part of the page Activity that is updated.
const consolePart = "activity?part=1"

// openConsole signs in with a code from `doorward ui` and opens the page Activity.
func (t *tools) openConsole(home string) (*console, error) {
	out, err := t.detached(home, "ui", "--print")
	if err != nil {
		return nil, fmt.Errorf("signing in to the console: %w", err)
	}
	base, code, ok := strings.Cut(strings.TrimSpace(string(out)), "#")
	if !ok {
		return nil, fmt.Errorf("signing in to the console: no code in %q", out)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, fmt.Errorf("signing in to the console: %w", err)
	}
	c := &console{base: base, client: &http.Client{Jar: jar}, over: make(chan error, 1)}
	if err := c.signIn(code); err != nil {
		return nil, err
	}
	return c, c.listen()
}

// detached runs a command of doorward in a process that is not below this one, and returns its
// output. This one is a client of the daemon as soon as it makes calls, and a console that was
// opened below a client is refused. The shell ends before the command begins.
func (t *tools) detached(home string, args ...string) ([]byte, error) {
	args = append(args, "--state-dir", home+"/state", "--runtime-dir", home+"/run", "--config", home+"/doorward.yaml")
	cmd := exec.Command("sh", append([]string{"-c", `(sleep 0.5; exec "$@") &`, "sh", t.doorward}, args...)...)
	cmd.Env = doorwardEnv(home)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err == nil && len(out) == 0 {
		err = errors.New("it printed nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("doorward %s: %w: %s", args[0], err, said.String())
	}
	return out, nil
}

func (c *console) signIn(code string) error {
	r, err := http.NewRequest(http.MethodPost, c.base+"session", strings.NewReader(url.Values{"code": {code}}.Encode()))
	if err != nil {
		return fmt.Errorf("signing in to the console: %w", err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", strings.TrimSuffix(c.base, "/ui/"))
	if err := c.done(c.client.Do(r)); err != nil {
		return fmt.Errorf("signing in to the console: %w", err)
	}
	return c.fetch()
}

// done reads a response to its end and fails unless its status is 200.
func (c *console) done(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (c *console) fetch() error { return c.done(c.client.Get(c.base + consolePart)) }

// listen opens the stream of changes and follows it as the page's script does.
func (c *console) listen() error {
	ctx, end := context.WithCancel(context.Background())
	c.end = end
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"live", nil)
	if err != nil {
		return fmt.Errorf("opening the console: %w", err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := c.client.Do(r)
	if err != nil {
		return fmt.Errorf("opening the console: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return fmt.Errorf("opening the console: %s", resp.Status)
	}
	go func() {
		defer resp.Body.Close()
		c.over <- c.follow(resp.Body)
	}()
	return nil
}

// follow reads events until the stream ends.
func (c *console) follow(events io.Reader) error {
	for in := bufio.NewScanner(events); in.Scan(); {
		switch in.Text() {
		case "event: changed":
			if err := c.fetch(); err != nil {
				return err
			}
			c.parts.Add(1)
		case "event: over":
			return errors.New("the session has ended")
		}
	}
	return errors.New("the stream has ended")
}

// fetched returns the number of parts fetched so far. It fails when the console did not stay open
// or was never notified, because the measurement is void then.
func (c *console) fetched() (int64, error) {
	select {
	case err := <-c.over:
		return 0, fmt.Errorf("the console did not stay open: %w", err)
	default:
	}
	n := c.parts.Load()
	if n == 0 {
		return 0, errors.New("the console was told of nothing new")
	}
	return n, nil
}

func (c *console) close() { c.end() }
