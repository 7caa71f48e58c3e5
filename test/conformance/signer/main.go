// Signer is the client under test in the conformance suite's OAuth scenarios: the shipped
// Doorward, with a browser that agrees to everything. The suite passes the address of its server
// as the last argument.
//
// The suite's authorization servers have other loopback ports than its servers. Doorward does not
// dial such an address only because a server names it, so signer looks the addresses up and
// configures them, as an operator would.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "signer:", err)
		os.Exit(1)
	}
}

// run executes one scenario: a list and a call, with as many sign-ins as needed. There are two if
// the server requires more scopes for the call.
func run(ctx context.Context, server string) error {
	dir, err := os.MkdirTemp("", "signer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &doorward{dir: dir, server: server}
	if err := d.start(ctx); err != nil {
		return err
	}
	defer d.stop()
	tool := "test"
	for _, step := range []func() (string, error){
		func() (string, error) { return d.command(ctx, "tools", "s", "--json") },
		func() (string, error) { return d.command(ctx, "call", "s", tool) },
	} {
		out, err := d.signed(ctx, step)
		if err != nil {
			return err
		}
		if name := regexp.MustCompile(`"name":"([^"]+)"`).FindStringSubmatch(out); name != nil {
			tool = name[1]
		}
	}
	return nil
}

// doorward is a daemon and its commands.
type doorward struct {
	dir, server string
	written     string // the written configuration
	cmd         *exec.Cmd
}

const tries = 3

// signed repeats a step after each sign-in that it needs.
func (d *doorward) signed(ctx context.Context, step func() (string, error)) (out string, err error) {
	for range tries {
		if out, err = step(); err == nil || !strings.Contains(err.Error(), "needs sign-in") {
			return out, err
		}
		if err := d.login(ctx); err != nil {
			return "", err
		}
	}
	return out, err
}

// configure writes the configuration; a running daemon reloads it.
func (d *doorward) configure(ctx context.Context) error {
	text, err := json.Marshal(d.configuration(ctx))
	if err != nil || string(text) == d.written {
		return err
	}
	d.written = string(text)
	if err := os.WriteFile(filepath.Join(d.dir, "doorward.yaml"), text, 0o600); err != nil {
		return err
	}
	if d.cmd == nil {
		return nil
	}
	defer time.Sleep(300 * time.Millisecond) // so that the daemon has read it
	return d.cmd.Process.Signal(syscall.SIGHUP)
}

func (d *doorward) start(ctx context.Context) error {
	if err := d.configure(ctx); err != nil {
		return err
	}
	d.cmd = d.prepare(ctx, "serve")
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		fmt.Fprintln(os.Stderr, lines.Text())
		if lines.Text() == "ready" {
			go io.Copy(os.Stderr, stderr)
			return nil
		}
	}
	return errors.New("the daemon is not ready")
}

func (d *doorward) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = d.cmd.Wait()
}

func (d *doorward) prepare(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Getenv("DOORWARD_BIN"), args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "HOME="+d.dir, "DOORWARD_CONFIG="+filepath.Join(d.dir, "doorward.yaml"),
		"DOORWARD_STATE_DIR="+filepath.Join(d.dir, "state"), "DOORWARD_RUNTIME_DIR="+filepath.Join(d.dir, "run"))
	return cmd
}

func (d *doorward) command(ctx context.Context, args ...string) (string, error) {
	out, err := d.prepare(ctx, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), fmt.Errorf("doorward %s: %s", args[0], exit.Stderr)
	}
	return string(out), err
}

// login opens the address that doorward prints. It updates the configuration first, because the
// server may now name another authorization server.
func (d *doorward) login(ctx context.Context) error {
	if err := d.configure(ctx); err != nil {
		return err
	}
	cmd := d.prepare(ctx, "login", "s", "--wait", "5s")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		_, err = fetch(ctx, strings.TrimSpace(address))
	}
	return errors.Join(err, cmd.Wait())
}

func fetch(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, err
}

// configuration returns the configuration that an operator would write for the scenario.
func (d *doorward) configuration(ctx context.Context) map[string]any {
	oauth := map[string]any{"client_metadata_url": "https://conformance-test.local/client-metadata.json"}
	if issuer := d.issuer(ctx); issuer != "" {
		oauth["authorization_server"] = issuer
	}
	var known struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	}
	if json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &known) == nil && known.ID != "" {
		oauth["client_id"] = known.ID
		if known.Secret != "" {
			oauth["client_secret"] = known.Secret
		}
	}
	if strings.HasPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/client-credentials") {
		oauth["grant"] = "client_credentials"
	}
	protocol := "auto"
	if v := os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"); v != "" && v < "2026" {
		protocol = "legacy"
	}
	return map[string]any{
		"listen": map[string]any{"http": []any{}},
		"mcpServers": map[string]any{"s": map[string]any{"url": d.server,
			"doorward": map[string]any{"allow_private": true, "timeout": "10s", "protocol": protocol, "oauth": oauth}}},
	}
}

// issuer returns the issuer in the server's metadata; empty: none.
func (d *doorward) issuer(ctx context.Context) string {
	u, err := url.Parse(d.server)
	if err != nil {
		return ""
	}
	root := u.Scheme + "://" + u.Host + "/.well-known/oauth-protected-resource"
	places := []string{root + u.Path, root}
	if resp, err := http.Post(d.server, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)); err == nil {
		resp.Body.Close()
		if m := regexp.MustCompile(`resource_metadata="([^"]+)"`).FindStringSubmatch(resp.Header.Get("WWW-Authenticate")); m != nil {
			places = []string{m[1]}
		}
	}
	for _, place := range places {
		var m struct {
			Servers []string `json:"authorization_servers"`
		}
		resp, err := fetch(ctx, place)
		if err == nil && resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&m) == nil && len(m.Servers) > 0 {
			return m.Servers[0]
		}
	}
	return ""
}
