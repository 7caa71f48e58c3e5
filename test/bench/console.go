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

// console is a page of the web console that is open, as far as a browser speaks to the daemon for it: it
// listens to what is new, and fetches the part that has changed.
type console struct {
	client *http.Client
	base   string // http://localhost:PORT/ui/
	end    context.CancelFunc
	over   chan error
	parts  atomic.Int64
}

// consolePart is the part of the page Activity that is kept up to date.
const consolePart = "activity?part=1"

// openConsole signs in with a code of `doorward ui` and opens the page Activity.
func (t *tools) openConsole(home string) (*console, error) {
	cmd := exec.Command(t.doorward, "ui", "--print", "--state-dir", home+"/state", "--runtime-dir", home+"/run", "--config", home+"/doorward.yaml")
	cmd.Env = doorwardEnv(home)
	out, err := cmd.Output()
	if err != nil {
		var said *exec.ExitError
		if errors.As(err, &said) {
			err = fmt.Errorf("%w: %s", err, said.Stderr)
		}
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

// done reads an answer to its end, which has to be a page.
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

// listen opens the stream of what is new, and does what the page's script does about it.
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

// follow takes events until the stream ends.
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

// fetched is how many parts were fetched so far. An error says that the console was not open all the time:
// then nothing was measured.
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
