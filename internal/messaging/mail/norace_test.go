//go:build !race

package mail_test

const raceDetector = false
