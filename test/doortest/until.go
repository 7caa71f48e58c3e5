package doortest

import (
	"testing"
	"time"

	"github.com/doorward/doorward/test/overload"
)

// Until waits until done is true, and fails the test if it is not within limit, which is longer
// on a machine under load.
func Until(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	if !Becomes(limit+overload.Late(), done) {
		t.Fatalf("not within %s: %s", limit, what)
	}
}

// Becomes waits until done is true, and reports whether it was within limit. It asks at least
// once, at the beginning every millisecond and later less often, because done may be expensive.
func Becomes(limit time.Duration, done func() bool) bool {
	for begun := time.Now(); !done(); {
		waited := time.Since(begun)
		if waited > limit {
			return false
		}
		time.Sleep(min(max(waited/8, time.Millisecond), 100*time.Millisecond))
	}
	return true
}
