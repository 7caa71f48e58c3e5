package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestADaemonOutlivesTheReaderOfItsLog shows that a daemon goes on when the other end of its
// standard error and output is closed, and ends in order: its log collector may end first.
func TestADaemonOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dwpipe") // a short path, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "doorward.yaml")
	if err := os.WriteFile(config, []byte("listen: {http: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("doorward", "serve")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, w, w
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "DOORWARD_STATE_DIR=" + filepath.Join(dir, "s"),
		"DOORWARD_RUNTIME_DIR=" + filepath.Join(dir, "r"), "DOORWARD_CONFIG=" + config}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for lines := bufio.NewScanner(r); lines.Scan() && lines.Text() != "ready"; {
	}
	r.Close()
	for range 20 { // each reload of a broken file prints its problem
		if err := os.WriteFile(config, []byte("listen: 7\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatalf("the daemon has ended: %v", err)
		}
		time.Sleep(20 * time.Millisecond) // two signals that wait are one
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("the daemon has ended: %v", err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(20*time.Second + late()):
		cmd.Process.Kill()
		t.Error("the daemon does not end")
	}
	log, err := os.Open(filepath.Join(dir, "s", "audit", "00000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	text, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(`"action":"audit.stop"`)) {
		t.Errorf("the log has no record of the stop:\n%s", text)
	}
}
