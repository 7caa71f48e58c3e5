package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"
)

// hookTime is the time limit of a hook, for which its client waits.
const hookTime = 2 * time.Second

// hookInput is the most bytes that are read of a client's description of an event.
const hookInput = 4 << 20

// hookEvent is a client's description of an event. All of it is claimed.
type hookEvent struct {
	Name   string `json:"hook_event_name"`
	CWD    string `json:"cwd"`
	Source string `json:"source"` // startup, resume, clear or compact
}

// readHook reads the description of an event. It waits at most a quarter of hookTime for
// the end of the input; then the description is empty.
func readHook(ctx context.Context, in io.Reader) (e hookEvent) {
	said := make(chan hookEvent, 1)
	go func() {
		var e hookEvent
		b, _ := io.ReadAll(io.LimitReader(in, hookInput))
		if json.Unmarshal(b, &e) != nil {
			e = hookEvent{} // input that is incomplete or not JSON is ignored
		}
		_, _ = io.Copy(io.Discard, in) // so that a client that writes more gets no broken pipe
		said <- e
	}()
	select {
	case e = <-said:
	case <-ctx.Done():
	case <-time.After(hookTime / 4):
	}
	return e
}

// stdin returns the input of a hook; that of a terminal is empty.
func stdin() io.Reader {
	if fi, err := os.Stdin.Stat(); err != nil || fi.Mode()&os.ModeCharDevice != 0 {
		return eof{}
	}
	return os.Stdin
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
