package main

import (
	"io"
	"os"

	"github.com/doorward/doorward/internal/trust/plaintext"
)

// Servers, agents and clients choose much of what the commands print. So all of
// it goes through one printer, which shows what a terminal would act on or hide
// as a JSON escape. JSON that is printed stays the same JSON.

// stdout is for data.
func stdout() io.Writer { return plaintext.Printer{To: os.Stdout} }

// stderr is for talk.
func stderr() io.Writer { return plaintext.Printer{To: os.Stderr} }

// exactly is stdout for what a program reads back byte for byte: the messages
// of connect, an exported record, a document. A terminal gets it as all else.
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
