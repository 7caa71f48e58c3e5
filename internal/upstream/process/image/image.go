// Package image holds the program of supervisors, which make builds first and puts into
// doorward.
//
// Invariant: the image is of the same source as the program that holds it. So it is there
// only in a build with the tag supervisor, which make sets; `go build` and `go test` have
// none, and a supervisor is then the program that the daemon is.
package image

// Child is the program, an ELF file; empty: there is none in this build.
func Child() string { return child }
