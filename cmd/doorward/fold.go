package main

import (
	"io"
	"strings"
)

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

// fits returns the number of the first characters of a line that fit into width columns. A
// terminal then breaks no line itself: what it carries over begins at the left, where it looks
// like a line of Doorward.
func fits(line []rune, width int) int {
	for i, r := range line {
		if width -= columnsOf(r); width < 0 {
			return i
		}
	}
	return len(line)
}

// columnsOf returns 2 for a character that a terminal may draw over two columns (UAX #11), and for
// some that it does not, and otherwise 1.
func columnsOf(r rune) int {
	if r >= 0x1100 && r < 0x1160 || r >= 0x2300 {
		return 2
	}
	return 1
}

// foldLine breaks a line at spaces into lines of at most width columns. It breaks words
// that are longer at the width. Lines after the first are indented by two more than it.
func foldLine(line string, width int) string {
	if whole := []rune(line); fits(whole, width) == len(whole) {
		return line
	}
	indent := len(line) - len(strings.TrimLeft(line, " "))
	pad := strings.Repeat(" ", min(indent+2, width/2))
	var out []string
	for rest := []rune(strings.TrimRight(line, " ")); len(rest) > 0; {
		most := max(fits(rest, width), len(pad)+1)
		if len(rest) <= most {
			return strings.Join(append(out, string(rest)), "\n")
		}
		end := most
		for end > len(pad) && rest[end] != ' ' {
			end--
		}
		if end <= len(pad) {
			end = most
		}
		out = append(out, strings.TrimRight(string(rest[:end]), " "))
		rest = []rune(pad + strings.TrimLeft(string(rest[end:]), " "))
	}
	return strings.Join(out, "\n")
}
