// Package desktop starts programs that inform the operator: a browser for the console, and
// the command that notifies of held calls.
//
// Invariant: a program gets only those variables of the daemon's environment that are listed
// here, and its output is not read. It acts for the operator, so it is not contained.
package desktop
