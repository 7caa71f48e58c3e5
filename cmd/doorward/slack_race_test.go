//go:build linux && race

package main

import "time"

// slack is added to every limit that a script gives. Built with the race
// detector each process sleeps for a second at its end, also those whose
// environment cannot tell it not to, and all are several times slower.
const slack = 4 * time.Second
