package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// fitting returns a writer to f for text that a person reads. At a terminal, lines longer
// than its width are broken at spaces. Otherwise a program may read the text, and lines
// are not broken.
func fitting(f *os.File) io.Writer {
	if !terminal(f) {
		return plaintext.Printer{To: f}
	}
	return plaintext.Printer{To: folder{f, columns()}}
}

// folder breaks the lines that are written to it. Each Write is a text of its own: a line
// that continues in the next Write is broken as two lines.
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

// foldLine breaks a line at spaces into lines of at most width characters. It breaks words
// that are longer at the width. Lines after the first are indented by two more than it.
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
