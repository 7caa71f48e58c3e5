//go:build race

package mail_test

// raceDetector reports that the race detector is on. SQLite is Go code here and runs a hundred
// times slower with it.
const raceDetector = true
