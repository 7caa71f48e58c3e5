// Package packages tests the output of `make packages`: two builds have the same bytes, and a
// machine with systemd installs, runs, upgrades and removes the packages as documented.
package packages
