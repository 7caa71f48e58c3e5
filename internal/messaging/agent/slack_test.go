//go:build !race

package agent

// slack is how much longer than it says something may take.
const slack = 1
