package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/doorward/doorward/internal/upstream/process"
)

// errInterrupted is the error of a question that was answered with Ctrl-C or Ctrl-D.
var errInterrupted = errors.New("interrupted")

// keyboard asks questions that are answered with one key. It reads only while a question
// is open, so that keys typed before stay in the terminal, where ask drops them.
type keyboard struct{ in *os.File }

// ask prints a question and returns the key that answers it. Keys that were typed before
// the question was on the screen are dropped. If the input is not a terminal, the key is
// the first byte of a line.
func (k keyboard) ask(ctx context.Context, question string) (byte, error) {
	fd := int(k.in.Fd())
	if !term.IsTerminal(fd) {
		fmt.Fprint(stdout(), question+": ")
		line, err := k.line(ctx)
		if line != "" {
			return line[0], nil
		}
		return 0, err
	}
	state, err := term.MakeRaw(fd)
	if err != nil {
		return 0, fmt.Errorf("reading a key: %w", err)
	}
	defer func() { _ = term.Restore(fd, state) }()
	fmt.Fprint(stdout(), question)
	if err := process.ForgetTyped(fd); err != nil {
		return 0, fmt.Errorf("discarding earlier key presses: %w", err)
	}
	fmt.Fprint(stdout(), ": ")
	return k.key(ctx)
}

// Keys that end the command. In raw mode the terminal sends no signals for them.
const (
	ctrlC = 0x03
	ctrlD = 0x04
)

// key returns the next key that is not a line end.
func (k keyboard) key(ctx context.Context) (byte, error) {
	for {
		b, err := k.next(ctx)
		switch {
		case err != nil:
			return 0, err
		case b == ctrlC || b == ctrlD:
			return 0, errInterrupted
		case b != '\n' && b != '\r':
			return b, nil
		}
	}
}

// line returns the next line, without its end and outer white space.
func (k keyboard) line(ctx context.Context) (string, error) {
	var b strings.Builder
	for {
		c, err := k.next(ctx)
		if err != nil || c == '\n' || c == '\r' {
			return strings.TrimSpace(b.String()), err
		}
		b.WriteByte(c)
	}
}

// keyEvery is the time after which next checks ctx again.
const keyEvery = 100 * time.Millisecond

// next reads one byte. It reads only when input is available, so that a question that ends
// without an answer does not consume the answer to the next one.
func (k keyboard) next(ctx context.Context) (byte, error) {
	for ctx.Err() == nil {
		there, err := process.Typed(int(k.in.Fd()), keyEvery)
		if err != nil {
			return 0, fmt.Errorf("waiting for a key: %w", err)
		}
		if there {
			var b [1]byte
			_, err := k.in.Read(b[:])
			return b[0], err
		}
	}
	return 0, context.Cause(ctx)
}
