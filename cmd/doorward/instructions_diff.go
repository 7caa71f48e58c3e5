package main

import (
	"fmt"
	"strings"
)

// diffContext is the number of equal lines shown before and after a difference.
const diffContext = 3

// maxDiff is the most entries of the table of a comparison. Beyond it the differing middle
// of two texts is shown as replaced as a whole, which is correct but longer.
const maxDiff = 4 << 20

// lineEdit is one line of a comparison. op is ' ' for a line in both texts, '-' for a line
// in the first only, '+' for a line in the second only.
type lineEdit struct {
	op   byte
	line string // with its line end, if it has one
}

// unified returns a unified diff of two texts; empty: they are equal.
func unified(nameA, nameB, a, b string) string {
	if a == b {
		return ""
	}
	edits := compared(linesOf(a), linesOf(b))
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", nameA, nameB)
	for start := 0; start < len(edits); {
		first, end := hunk(edits, start)
		if first < 0 {
			break
		}
		writeHunk(&out, edits, first, end)
		start = end
	}
	return out.String()
}

// linesOf returns the lines of s, each with its line end.
func linesOf(s string) []string {
	all := strings.SplitAfter(s, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// hunk finds the next run of differences from start on, with its context lines.
// first is -1 when there is none.
func hunk(edits []lineEdit, start int) (first, end int) {
	first = -1
	for i := start; i < len(edits); i++ {
		if edits[i].op == ' ' {
			continue
		}
		if first < 0 {
			first = max(start, i-diffContext)
		} else if i-end > diffContext { // too far away for the same hunk
			return first, end
		}
		end = min(len(edits), i+1+diffContext)
	}
	return first, end
}

func writeHunk(out *strings.Builder, edits []lineEdit, first, end int) {
	lineA, lineB := 1, 1
	for _, e := range edits[:first] {
		if e.op != '+' {
			lineA++
		}
		if e.op != '-' {
			lineB++
		}
	}
	countA, countB := 0, 0
	for _, e := range edits[first:end] {
		if e.op != '+' {
			countA++
		}
		if e.op != '-' {
			countB++
		}
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(lineA, countA), span(lineB, countB))
	for _, e := range edits[first:end] {
		out.WriteByte(e.op)
		out.WriteString(e.line)
		if !strings.HasSuffix(e.line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// span returns a range of lines in the notation of a diff. An empty range is named by the
// line before it.
func span(line, count int) string {
	switch count {
	case 0:
		return fmt.Sprintf("%d,0", line-1)
	case 1:
		return fmt.Sprint(line)
	}
	return fmt.Sprintf("%d,%d", line, count)
}

// compared returns the edits that turn a into b. They are as few as possible, unless the
// texts exceed maxDiff.
func compared(a, b []string) []lineEdit {
	var head, tail []lineEdit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, lineEdit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	for _, line := range a[len(a)-n:] {
		tail = append(tail, lineEdit{' ', line})
	}
	middle := aligned(a[:len(a)-n], b[:len(b)-n])
	return append(append(head, middle...), tail...)
}

// aligned returns the edits that turn a into b. Equal lines at both ends were removed before.
func aligned(a, b []string) (out []lineEdit) {
	common := longest(a, b)
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case common != nil && i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, lineEdit{' ', a[i]})
			i, j = i+1, j+1
		case i < len(a) && (common == nil || j == len(b) || common[i+1][j] >= common[i][j+1]):
			out = append(out, lineEdit{'-', a[i]})
			i++
		default:
			out = append(out, lineEdit{'+', b[j]})
			j++
		}
	}
	return out
}

// longest returns, for each pair of positions, the length of the longest common
// subsequence from there on; nil: the table would exceed maxDiff.
func longest(a, b []string) [][]int32 {
	if len(a)+1 > maxDiff/(len(b)+1) {
		return nil
	}
	table := make([][]int32, len(a)+1)
	for i := range table {
		table[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	return table
}
