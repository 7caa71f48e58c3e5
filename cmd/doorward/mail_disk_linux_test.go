package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// limitFiles limits the size of the files that the daemon writes, which is a full disk to
// it. 0: no limit.
func (d *mailDaemon) limitFiles(bytes uint64) {
	d.t.Helper()
	var l unix.Rlimit
	pid := d.proc.cmd.Process.Pid
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &l); err != nil {
		d.t.Fatal(err)
	}
	l.Cur = l.Max
	if bytes > 0 {
		l.Cur = bytes
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &l, nil); err != nil {
		d.t.Fatal(err)
	}
}

// grown is the size of the largest file that matches.
func (d *mailDaemon) grown(pattern string) (size int64) {
	d.t.Helper()
	all, err := filepath.Glob(filepath.Join(d.dir, "s", pattern))
	if err != nil || len(all) == 0 {
		d.t.Fatalf("no %s: %v", pattern, err)
	}
	for _, path := range all {
		if fi, err := os.Stat(path); err == nil {
			size = max(size, fi.Size())
		}
	}
	return size
}

// On a full disk a send is refused and nothing of it remains; what was accepted stays.
// Other servers go on as long as their calls can be recorded. With space again everything
// works without a restart.
func TestMailOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := startMail(t, "one", mailConfig("one", "", roomy)+mailEcho)
	d.echoes()
	writer, reader := d.client("tcp").mustOpen(), d.client("tcp").mustOpen()
	writer.register("writer")
	reader.register("reader")
	var accepted, refused []string
	n := 0
	send := func() string {
		n++
		body := fmt.Sprintf("message %d ", n) + strings.Repeat("x", 20_000)
		what := writer.call("send", obj{"to": "reader", "body": body}).what()
		if what == "ok" {
			accepted = append(accepted, body)
		} else {
			refused = append(refused, body)
		}
		return what
	}
	if what := send(); what != "ok" {
		t.Fatal(what)
	}

	// The store is full, the record is not.
	d.limitFiles(uint64(d.grown("audit/*.jsonl")) + 64<<10)
	what := "ok"
	for range 100 {
		if what = send(); what != "ok" {
			break
		}
	}
	if what != "STORE_UNAVAILABLE" {
		t.Fatalf("after %d messages: %s", len(accepted), what)
	}
	for range 3 {
		if what := send(); what != "STORE_UNAVAILABLE" {
			t.Errorf("another one: %s", what)
		}
	}
	d.echoes()
	d.limitFiles(0)
	if !poll(mailSoon, func() bool { return send() == "ok" }) {
		t.Fatalf("with space again: %s", send())
	}

	// Nothing can be written any more: no act without its record.
	d.limitFiles(64)
	for range 3 {
		if what := send(); what != "AUDIT_UNAVAILABLE" && what != "STORE_UNAVAILABLE" && what != "rpc 1503" {
			t.Errorf("without any space: %s", what)
		}
	}
	r := d.client("tcp").post(t.Context(), "/mcp/echo", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},`+meta+`}}`, "tools/call echo", nil)
	if r.rpc != 1503 || r.status != 503 {
		t.Errorf("another server: %s", r)
	}
	d.limitFiles(0)
	if !poll(mailSoon, func() bool { return send() == "ok" }) {
		t.Fatalf("with space again: %s", send())
	}
	d.echoes()

	var got []string
	there := make(map[string]bool)
	for i, m := range reader.drain() {
		there[m.MessageID] = true
		if got = append(got, m.Body); m.Seq != int64(i+1) {
			t.Errorf("number %d has seq %d", i+1, m.Seq)
		}
	}
	if strings.Join(got, "\n") != strings.Join(accepted, "\n") {
		t.Errorf("%d messages were accepted and %d refused, %d arrived", len(accepted), len(refused), len(got))
	}
	// A record is written before its effect. A record without an effect is followed by one
	// that says so.
	recorded, undone := make(map[string]bool), make(map[string]bool)
	for _, r := range d.records() {
		switch id := r.Detail["message"]; {
		case r.Action == "agent.send" && (r.Result == "uncommitted" || r.Result == "uncertain"):
			undone[id] = true
		case r.Action == "agent.send" && r.Decision == "allow":
			recorded[id] = true
		}
	}
	for id := range recorded {
		if there[id] == undone[id] {
			t.Errorf("the message %s: there %v, undone %v", id, there[id], undone[id])
		}
	}
	if len(recorded)-len(undone) != len(accepted) || len(undone) == 0 {
		t.Errorf("%d messages are on record, %d of them undone; %d were accepted and %d refused", len(recorded), len(undone), len(accepted), len(refused))
	}
	d.sound()
}
