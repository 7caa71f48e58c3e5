package main

import (
	"context"
	"io"
	"os"

	"golang.org/x/term"
)

// keys reads single keys from the terminal.
type keys struct {
	pressed chan byte
	restore func()
}

// newKeys begins to read. On what is no terminal a key is the first byte of a line.
func newKeys() *keys {
	k := &keys{pressed: make(chan byte), restore: func() {}}
	in := os.Stdin
	go func() {
		defer close(k.pressed)
		b := make([]byte, 1)
		for {
			if _, err := in.Read(b); err != nil {
				return
			}
			if b[0] != '\n' && b[0] != '\r' {
				k.pressed <- b[0]
			}
		}
	}()
	return k
}

// next is the next key. While it waits the terminal gives keys without a line end.
func (k *keys) next(ctx context.Context) (byte, error) {
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		if state, err := term.MakeRaw(fd); err == nil {
			defer func() { _ = term.Restore(fd, state) }()
		}
	}
	select {
	case b, ok := <-k.pressed:
		if !ok {
			return 0, io.EOF
		}
		return b, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (k *keys) close() { k.restore() }
