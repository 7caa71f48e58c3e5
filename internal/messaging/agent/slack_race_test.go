//go:build race

package agent

// slack is how much longer than it says something may take: with the race
// detector everything is slow.
const slack = 10
