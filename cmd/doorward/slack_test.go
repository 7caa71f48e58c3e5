//go:build linux && !race

package main

import "time"

// slack is added to every limit that a script gives.
const slack = 500 * time.Millisecond
