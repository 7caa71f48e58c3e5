//go:build race

package agent

// slack is the factor for limits of time: the race detector makes everything slow.
const slack = 10
