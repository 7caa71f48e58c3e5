// Package image holds the program of supervisors, which make builds first and embeds in doorward.
//
// Invariant: the image is built from the same source as the program that holds it. So it exists only in a build with
// the tag supervisor, which make sets. After `go build` and `go test` there is none, and a supervisor runs the
// daemon's own binary.
package image

// Child returns the program, an ELF file; empty: this build has none.
func Child() string { return child }
