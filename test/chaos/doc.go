// Package chaos kills daemons and databases under agents that write to each other,
// and shows that no acknowledged message is lost, reordered or left undelivered.
//
// The tests have the build tag chaos. Without CHAOS=long they are a short form of
// half a minute; `make chaos` runs the long one.
package chaos
