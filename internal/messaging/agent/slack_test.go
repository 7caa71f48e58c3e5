//go:build !race

package agent

// slack is the factor for limits of time.
const slack = 1
