// Package desktop starts the programs that reach the operator: a browser for the console,
// and the command that tells of held calls.
//
// Invariant: a program gets no variable of the daemon's environment that is not named here,
// and its output is not read. It belongs to the operator, so no sandbox holds it.
package desktop
