package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// fitting writes text for people to f. At a terminal, lines that are longer than it is
// wide are broken at spaces; elsewhere a program may read them, and they stay whole.
func fitting(f *os.File) io.Writer {
	if !terminal(f) {
		return plaintext.Printer{To: f}
	}
	return plaintext.Printer{To: folder{f, columns()}}
}

// folder breaks the lines that are written to it. A write is one text: a line that goes
// on in the next write is not joined with it.
type folder struct {
	to    io.Writer
	width int
}

func (f folder) Write(p []byte) (int, error) {
	lines := strings.Split(string(p), "\n")
	for i, line := range lines {
		lines[i] = foldLine(line, f.width)
	}
	if _, err := io.WriteString(f.to, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// foldLine breaks a line at spaces into lines of a width, and words that are longer where
// the width ends. What follows the first is indented like it, and by two more.
func foldLine(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	indent := len(line) - len(strings.TrimLeft(line, " "))
	pad := strings.Repeat(" ", min(indent+2, width/2))
	var out []string
	for rest := []rune(strings.TrimRight(line, " ")); len(rest) > 0; {
		if len(rest) <= width {
			return strings.Join(append(out, string(rest)), "\n")
		}
		end := width
		for end > len(pad) && rest[end] != ' ' {
			end--
		}
		if end <= len(pad) {
			end = width
		}
		out = append(out, strings.TrimRight(string(rest[:end]), " "))
		rest = []rune(pad + strings.TrimLeft(string(rest[end:]), " "))
	}
	return strings.Join(out, "\n")
}
