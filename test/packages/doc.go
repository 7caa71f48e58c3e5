// Package packages tests what `make packages` makes: the bytes are the same
// twice, and a machine with systemd installs, runs, upgrades and removes them as
// the documents say.
package packages
