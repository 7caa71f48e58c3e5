//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// mailDaemon is the daemon with its built-in server, and the agents that exchange messages through
// it: sessions on the Unix socket, each a separate peer.
type mailDaemon struct {
	proxy          *process
	senders, boxes []*session
	cursors        []string // of each mailbox; empty: nothing fetched yet
}

// startMailDaemon runs the daemon with its Unix socket only, with all checks and the audit log on.
// Only the limits on what an agent may send are raised.
func (t *tools) startMailDaemon(dir string) (*process, error) {
	file := filepath.Join(dir, "doorward.yaml")
	config, err := json.MarshalIndent(map[string]any{
		"listen": map[string]any{"unix": "auto", "http": []any{}},
		"agent": map[string]any{
			"enabled": true, "mailbox_messages": plentyRate, "mailbox_bytes": 1 << 30, "sender_messages": plentyRate,
			"sends_per_minute": 100_000,
		},
		"limits": map[string]any{
			"sessions": plenty, "sessions_per_principal": plenty, "calls_per_second": plentyRate, "calls_per_principal": plenty,
		},
	}, "", "  ")
	if err == nil {
		err = os.WriteFile(file, config, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	run := filepath.Join(dir, "run")
	ready := func(line string) (string, bool) { return filepath.Join(run, "doorward.sock"), line == "ready" }
	return start(2, ready, t.doorward, doorwardEnv(dir), "serve", "--config", file,
		"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", run)
}

// databaseIn returns the directory of a daemon's message database.
func databaseIn(dir string) (string, error) {
	found := ""
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == "doorward.db" {
			found = filepath.Dir(path)
		}
		return err
	})
	if err == nil && found == "" {
		err = errors.New("the daemon has no database")
	}
	return found, err
}

func openDaemonPost(t *tools, dir string) (*post, error) {
	p, err := t.startMailDaemon(dir)
	if err != nil {
		return nil, err
	}
	d := &mailDaemon{proxy: p, cursors: make([]string, 2*maxSenders)}
	if err := d.people(maxSenders, 2*maxSenders); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s", err, p.tail), d.close())
	}
	return &post{send: d.send, fetch: d.fetch, close: d.close, pid: p.pid()}, nil
}

// people opens a session for each sender and each mailbox, and registers them.
func (d *mailDaemon) people(senders, boxes int) error {
	at := endpoint{d.proxy.addr, "/mcp/agent"}
	var err error
	if d.senders, err = openAll(at, senders, false); err != nil {
		return err
	}
	if d.boxes, err = openAll(at, boxes, false); err != nil {
		return err
	}
	for i, s := range d.senders {
		if _, err := s.use("register", `{"name":"bench-sends-`+strconv.Itoa(i)+`","namespace":"bench"}`); err != nil {
			return err
		}
	}
	for i, s := range d.boxes {
		if _, err := s.use("register", `{"name":"`+boxName(i)+`","namespace":"bench"}`); err != nil {
			return err
		}
	}
	return nil
}

func boxName(i int) string { return "bench-reads-" + strconv.Itoa(i) }

func (d *mailDaemon) send(worker, box int, n int64) error {
	_, err := d.senders[worker].use("send", `{"to":"`+boxName(box)+`","body":"`+textOf(worker, n)+`"}`)
	return err
}

func (d *mailDaemon) fetch(box int) (int, error) {
	args := `{"max":` + strconv.Itoa(batchSize) + `,"max_bytes":131072,"format":"json"`
	if d.cursors[box] != "" {
		args += `,"after":"` + d.cursors[box] + `"`
	}
	body, err := d.boxes[box].use("inbox", args+"}")
	if err != nil {
		return 0, err
	}
	const key = `"cursor":"`
	at := bytes.Index(body, []byte(key))
	if at < 0 {
		return 0, fmt.Errorf("no cursor in %.300q", body)
	}
	cursor, _, _ := bytes.Cut(body[at+len(key):], []byte(`"`))
	d.cursors[box] = string(cursor)
	return bytes.Count(body, []byte(`"lease_expires_at":`)), nil
}

func (d *mailDaemon) close() error {
	closeAll(d.senders)
	closeAll(d.boxes)
	d.proxy.stop()
	return nil
}

// use calls a tool of the built-in server. It fails when the result is an error.
func (s *session) use(tool, args string) ([]byte, error) {
	if err := s.refresh(); err != nil {
		return nil, err
	}
	s.calls++
	s.conn.patience(callPatience)
	s.body = append(s.body[:0], `{"jsonrpc":"2.0","id":`...)
	s.body = strconv.AppendInt(s.body, s.calls, 10)
	s.body = append(s.body, `,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+args+`}}`...)
	if s.header[tool] == nil {
		s.header[tool] = s.callHeader(tool)
	}
	s.used = time.Now()
	a, err := s.conn.post(s.header[tool], s.body)
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", tool, err)
	}
	if a.Status != 200 || !s.hasID(a.Body) || !bytes.Contains(a.Body, []byte(`"structuredContent":`)) || bytes.Contains(a.Body, []byte(`"isError":true`)) {
		return nil, fmt.Errorf("calling %s: %s", tool, a)
	}
	return a.Body, nil
}
