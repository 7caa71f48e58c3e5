//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// instructed holds the two daemons of the section instructions, in front of the same tools, and the
// connections to them.
type instructed struct {
	fixture, with, without *process
	door, stranger         *door // to the daemon with instructions, and to the one without
	token                  string
	audit                  string     // audit directory of the daemon with instructions
	sessions               []*session // used by the calls
}

func (p *instructed) stop() {
	closeAll(p.sessions)
	for _, d := range []*door{p.door, p.stranger} {
		if d != nil {
			d.conn.close()
		}
	}
	for _, q := range []*process{p.with, p.without, p.fixture} {
		if q != nil {
			q.stop()
		}
	}
}

// startInstructed starts the daemon with its Unix socket only, with all checks and the audit log on
// and raised caps. If docs is empty, the configuration does not mention instructions.
func (t *tools) startInstructed(dir, docs string, fixture *process) (*process, error) {
	config := map[string]any{
		"listen": map[string]any{"unix": "auto", "http": []any{}},
		"mcpServers": map[string]any{"bench": map[string]any{
			"url":      "http://" + fixture.addr + "/mcp",
			"doorward": map[string]any{"allow_private": true, "max_concurrency": plenty},
		}},
		"limits": map[string]any{
			"sessions": plenty, "sessions_per_principal": plenty, "calls_per_second": plentyRate, "calls_per_principal": plenty,
		},
	}
	if docs != "" {
		config["instructions"] = map[string]any{"dir": docs}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	file := filepath.Join(dir, "doorward.yaml")
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	run := filepath.Join(dir, "run")
	ready := func(line string) (string, bool) { return filepath.Join(run, "doorward.sock"), line == "ready" }
	return start(2, ready, t.doorward, doorwardEnv(dir), "serve", "--config", file,
		"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", run)
}

// open connects, creates the session that most paths use, and waits until all documents are
// available.
func (p *instructed) open() (err error) {
	if p.door, err = openDoor(p.with.addr); err != nil {
		return err
	}
	if p.stranger, err = openDoor(p.without.addr); err != nil {
		return err
	}
	own, err := p.door.newSession("/auth/session", `{"client":{"name":"doorward-bench","version":"1"},"project":"bench"}`)
	if err != nil {
		return err
	}
	p.token = own.Token
	for deadline := time.Now().Add(startPatience); ; time.Sleep(50 * time.Millisecond) {
		a, err := p.door.ask("GET", "/auth/templates?format=json", bearing(p.token), "")
		if err != nil {
			return err
		}
		if missing := missingIn(a); missing == "" {
			return nil
		} else if time.Now().After(deadline) {
			return fmt.Errorf("the document %s is not there after %v: %s", missing, startPatience, a)
		}
	}
}

// missingIn returns the name of a document that is not in the list, or "" if all are.
func missingIn(list answer) string {
	for _, d := range guidance() {
		if list.Status != 200 || !strings.Contains(string(list.Body), `"`+d.name+`"`) {
			return d.name
		}
	}
	return ""
}

// door is a persistent connection to the Unix socket.
type door struct {
	at   string
	conn *rawConn
	used time.Time // zero: the connection cannot be used again
}

func openDoor(at string) (*door, error) {
	conn, err := dialRaw(at, 16<<10)
	if err != nil {
		return nil, err
	}
	d := &door{at: at, conn: conn, used: time.Now()}
	if err := d.health(); err != nil {
		conn.close()
		return nil, err
	}
	return d, nil
}

// fresh dials again when the connection has been idle for long or is unusable. The daemon
// identifies the caller before anything is timed.
func (d *door) fresh(int) error {
	if time.Since(d.used) < keepAlive {
		return nil
	}
	next, err := openDoor(d.at)
	if err != nil {
		return err
	}
	d.conn.close()
	*d = *next
	return nil
}

// ask makes one request. lines are complete header lines.
func (d *door) ask(method, path, lines, body string) (answer, error) {
	d.used = time.Now()
	d.conn.patience(callPatience)
	var b strings.Builder
	b.WriteString(method + " " + path + " HTTP/1.1\r\nHost: doorward\r\nUser-Agent: doorward-bench\r\n" + lines)
	if method == "POST" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	a, err := d.conn.exchange([]byte(b.String()))
	if err != nil || a.Status >= 400 { // the daemon may close the connection after it
		d.used = time.Time{}
	}
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return a, nil
}

func bearing(token string) string { return "Authorization: Bearer " + token + "\r\n" }

func (d *door) health() error {
	a, err := d.ask("GET", "/auth/health", "", "")
	if err == nil && (a.Status != 200 || !strings.Contains(string(a.Body), `"ok"`)) {
		err = fmt.Errorf("health: %s", a)
	}
	return err
}

// made is a delivery session.
type made struct {
	Token string `json:"token"`
	ID    string `json:"session_id"`
}

// newSession creates a delivery session.
func (d *door) newSession(path, body string) (m made, err error) {
	a, err := d.ask("POST", path, "", body)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(a.Body, &m); a.Status != 201 || err != nil || m.Token == "" || m.ID == "" {
		return m, fmt.Errorf("making a session by %s: status %d, %d bytes", path, a.Status, len(a.Body)) // no body in the message: it may hold a token
	}
	return m, nil
}

// newSessions creates n sessions as the operator.
func (d *door) newSessions(n int) ([]made, error) {
	if err := d.fresh(n); err != nil {
		return nil, err
	}
	all := make([]made, n)
	for i := range all {
		var err error
		if all[i], err = d.newSession("/auth/admin/sessions", `{"scope":"structural","ttl_s":3600,"name":"bench"}`); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// revoke ends sessions as the operator: a principal has at most a thousand.
func (d *door) revoke(sessions []made) error {
	if err := d.fresh(0); err != nil {
		return err
	}
	for _, m := range sessions {
		a, err := d.ask("POST", "/auth/admin/sessions/"+m.ID+"/revoke", "", "{}")
		if err == nil && a.Status != 200 {
			err = fmt.Errorf("revoking a session: %s", a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// greet opens an MCP session at the aggregate endpoint and returns the initialize answer.
func (d *door) greet(lines string) (answer, error) {
	a, err := d.ask("POST", "/mcp", "Accept: application/json, text/event-stream\r\n"+lines, initialize)
	if err == nil && (a.Status != 200 || a.Session == "") {
		err = fmt.Errorf("initialize: %s", a)
	}
	return a, err
}

// leave ends MCP sessions.
func (d *door) leave(sessions []string) error {
	var all []error
	for _, id := range sessions {
		a, err := d.ask("DELETE", "/mcp", "Mcp-Session-Id: "+id+"\r\nMCP-Protocol-Version: "+legacyVersion+"\r\n", "")
		if err == nil && a.Status >= 300 {
			err = fmt.Errorf("ending a session: %s", a)
		}
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil {
		return firstOf(err)
	}
	return nil
}
