package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon/config"
)

// Servers, agents and clients choose much of what the commands print. All output
// goes through one printer, which writes control and invisible characters as
// JSON escapes. Printed JSON keeps its value.

// stdout is for data.
func stdout() io.Writer { return plaintext.Printer{To: os.Stdout} }

// people is stdout for text that a person reads.
func people() io.Writer { return fitting(os.Stdout) }

// screen reports that stdout is a terminal.
func screen() bool { return terminal(os.Stdout) }

// stderr is for talk.
func stderr() io.Writer { return fitting(os.Stderr) }

// logOutput is for the log, a line a message however long.
func logOutput() io.Writer { return plaintext.Printer{To: os.Stderr} }

// exactly is stdout for data that a program reads back byte for byte: the
// messages of connect, an exported record, a document. A terminal gets the
// escaped form.
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

// printLine writes a line in a colour, where stdout is a terminal and the user has not
// said otherwise (https://no-color.org).
func printLine(line string, c colour) error {
	if c == "" || !terminal(os.Stdout) || os.Getenv("NO_COLOR") != "" {
		_, err := fmt.Fprintln(fitting(os.Stdout), line)
		return err
	}
	_, err := fmt.Fprint(os.Stdout, string(c), plaintext.Line(line), "\x1b[0m\n")
	return err
}

// columns is the width of the terminal in characters, 80 where it is unknown.
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

// table aligns the cells of rows in columns. The first row may be a header.
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
// false where there is no terminal to ask at.
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
