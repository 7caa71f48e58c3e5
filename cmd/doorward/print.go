package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon/config"
)

// Servers, agents and clients choose much of the text that the commands print. All output
// uses one printer, which writes control and invisible characters as
// JSON escapes. Printed JSON keeps its value.

// stdout returns the writer for data.
func stdout() io.Writer { return plaintext.Printer{To: os.Stdout} }

// fitting returns a writer to f for text that a person reads. At a terminal, lines longer
// than its width are broken at spaces. Otherwise a program may read the text, and lines
// are not broken.
func fitting(f *os.File) io.Writer {
	if !terminal(f) {
		return plaintext.Printer{To: f}
	}
	return plaintext.Printer{To: folder{f, columns()}}
}

// people returns the writer to stdout for text that a person reads.
func people() io.Writer { return fitting(os.Stdout) }

// screen reports whether stdout is a terminal.
func screen() bool { return terminal(os.Stdout) }

// stderr returns the writer for messages to a person.
func stderr() io.Writer { return fitting(os.Stderr) }

// logOutput returns the writer for the log, whose lines are not broken.
func logOutput() io.Writer { return plaintext.Printer{To: os.Stderr} }

// exactly returns the writer to stdout for data that a program reads byte for byte: the
// messages of connect, exported records, a document. At a terminal the data is escaped.
func exactly() io.Writer {
	if terminal(os.Stdout) {
		return stdout()
	}
	return os.Stdout
}

func terminal(f *os.File) bool {
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}

// colour is an escape sequence for text at a terminal.
type colour string

const (
	red    colour = "\x1b[31m"
	yellow colour = "\x1b[33m"
)

// printLine prints a line, in a colour if stdout is a terminal and NO_COLOR is not set
// (https://no-color.org).
func printLine(line string, c colour) error {
	if c == "" || !terminal(os.Stdout) || os.Getenv("NO_COLOR") != "" {
		_, err := fmt.Fprintln(fitting(os.Stdout), line)
		return err
	}
	_, err := fmt.Fprint(os.Stdout, string(c), plaintext.Line(line), "\x1b[0m\n")
	return err
}

// columns returns the width of the terminal in characters; 80: it is not known.
func columns() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= 40 {
		return n
	}
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n >= 40 {
			return n
		}
	}
	return 80
}

// printJSON writes one JSON value on one line.
func printJSON(v any) error {
	text, err := plainJSON(v)
	if err == nil {
		_, err = fmt.Fprint(stdout(), text)
	}
	return err
}

// printOnce prints a token, which cannot be printed again. If that fails, also because the reader of a
// pipe has ended, it undoes the token.
func printOnce(print, undo func() error) error {
	signal.Ignore(syscall.SIGPIPE) // it would end the command before the undoing
	err := print()
	if err == nil {
		return nil
	}
	if remains := undo(); remains != nil {
		return fmt.Errorf("printing the token: %w; revoke it, since it could not be revoked here: %w", err, remains)
	}
	return fmt.Errorf("printing the token, which has been revoked: %w", err)
}

// table returns the rows with their cells aligned in columns. The first row may be a header.
func table(rows ...[]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush() // a strings.Builder returns no errors
	return b.String()
}

// sayProblems prints the problems of a configuration.
func sayProblems(problems []config.Problem) {
	for _, p := range problems {
		fmt.Fprintln(stderr(), p)
	}
}

// confirm asks a question at the terminal and reports the answer. asked is
// false if there is no terminal.
func confirm(in *bufio.Reader, question string) (yes, asked bool) {
	if !terminal(os.Stdin) {
		return false, false
	}
	fmt.Fprint(stderr(), question+" [y/N] ")
	line, err := in.ReadString('\n')
	if errors.Is(err, io.EOF) && line == "" { // /dev/null is a character device too
		fmt.Fprintln(stderr())
		return false, false
	}
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes", true
}
