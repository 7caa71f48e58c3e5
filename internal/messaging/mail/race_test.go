//go:build race

package mail_test

// raceDetector: SQLite is Go code here, and under the detector a hundred times
// slower.
const raceDetector = true
