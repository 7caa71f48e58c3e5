package protocol

import "time"

// The protocol revisions that Doorward knows.
const (
	V20241105 = "2024-11-05"
	V20250326 = "2025-03-26"
	V20250618 = "2025-06-18"
	V20251125 = "2025-11-25"
	V20260728 = "2026-07-28"
)

// The newest known revision with a handshake, and the newest without.
const (
	LatestLegacy = V20251125
	LatestModern = V20260728
)

// IsLegacyVersion reports whether v is one of the four known revisions with an initialize
// handshake.
func IsLegacyVersion(v string) bool {
	switch v {
	case V20241105, V20250326, V20250618, V20251125:
		return true
	}
	return false
}

// IsModernVersion reports whether v is a known revision that carries version and
// capabilities in each request.
func IsModernVersion(v string) bool { return v == V20260728 }

// LooksModern reports whether v is a calendar date from 2026-07-28 on, known or not. Such
// a request belongs to the modern era, even if it is refused.
func LooksModern(v string) bool {
	if v <= V20260728 { // no later date: the usual cases parse nothing
		return v == V20260728
	}
	_, err := time.Parse(time.DateOnly, v)
	return err == nil
}
