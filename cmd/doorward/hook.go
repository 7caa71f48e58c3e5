package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"
)

// hookTime bounds a hook: its client waits for it.
const hookTime = 2 * time.Second

// hookInput bounds what a client may say of the event.
const hookInput = 4 << 20

// hookEvent is what a client says of an event. All of it is claimed.
type hookEvent struct {
	Name   string `json:"hook_event_name"`
	CWD    string `json:"cwd"`
	Source string `json:"source"` // startup, resume, clear or compact
}

// readHook reads what a client says, and does not wait for one that never ends.
func readHook(ctx context.Context, in io.Reader) (e hookEvent) {
	said := make(chan hookEvent, 1)
	go func() {
		var e hookEvent
		b, _ := io.ReadAll(io.LimitReader(in, hookInput))
		if json.Unmarshal(b, &e) != nil {
			e = hookEvent{} // half of it, or garbage, says nothing
		}
		_, _ = io.Copy(io.Discard, in) // the client need not find its pipe broken
		said <- e
	}()
	select {
	case e = <-said:
	case <-ctx.Done():
	case <-time.After(hookTime / 4):
	}
	return e
}

// stdin reads a hook's input; a terminal gives none.
func stdin() io.Reader {
	if fi, err := os.Stdin.Stat(); err != nil || fi.Mode()&os.ModeCharDevice != 0 {
		return eof{}
	}
	return os.Stdin
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
