package protocol

import "testing"

func TestVersions(t *testing.T) {
	t.Parallel()
	cases := []struct {
		v                     string
		legacy, modern, looks bool
	}{
		{V20241105, true, false, false},
		{V20250326, true, false, false},
		{V20250618, true, false, false},
		{V20251125, true, false, false},
		{V20260728, false, true, true},
		{"2026-07-27", false, false, false},
		{"2026-07-29", false, false, true},
		{"2027-01-01", false, false, true},
		{"2028-02-29", false, false, true},
		{"2027-02-29", false, false, false},
		{"2027-13-01", false, false, false},
		{"2027-1-1", false, false, false},
		{" 2027-01-01", false, false, false},
		{"2027-01-01T00:00:00Z", false, false, false},
		{"2025-11-25 ", false, false, false},
		{"9999-99-99", false, false, false},
		{"DRAFT-2026-v1", false, false, false},
		{"", false, false, false},
	}
	for _, c := range cases {
		if IsLegacyVersion(c.v) != c.legacy || IsModernVersion(c.v) != c.modern || LooksModern(c.v) != c.looks {
			t.Errorf("%q: legacy %v, modern %v, looks modern %v", c.v, IsLegacyVersion(c.v), IsModernVersion(c.v), LooksModern(c.v))
		}
	}
}
