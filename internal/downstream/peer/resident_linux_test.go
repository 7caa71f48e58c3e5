package peer

import (
	"os"
	"strings"
	"testing"
)

// Unmap makes less of the program's file resident, and the program still runs.
func TestUnmapGivesPagesBackAndTheProgramRunsOn(t *testing.T) {
	before := residentFile(t)
	if err := Unmap(); err != nil {
		t.Fatal(err)
	}
	after := residentFile(t)
	if after >= before {
		t.Errorf("%d kB of the file before, %d after", before, after)
	}
	if s := strings.Repeat("still here", 2); s != "still herestill here" {
		t.Error(s)
	}
}

func residentFile(t *testing.T) (kb int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "RssFile:"); ok {
			for _, c := range strings.TrimSpace(rest) {
				if c < '0' || c > '9' {
					break
				}
				kb = 10*kb + int(c-'0')
			}
		}
	}
	return kb
}

// Only private mappings of the program's own file that are not writable are unmapped.
func TestOnlyReadOnlyMappingsOfTheProgramAreUnmapped(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"00400000-01000000 r-xp 00000000 fe:00 12 /usr/bin/doorward":       true,
		"01000000-02000000 r--p 00c00000 fe:00 12 /usr/bin/doorward":       true,
		"02000000-02100000 rw-p 01c00000 fe:00 12 /usr/bin/doorward":       false,
		"02000000-02100000 r--s 01c00000 fe:00 12 /usr/bin/doorward":       false,
		"7f0000000000-7f0000100000 r-xp 00000000 fe:00 13 /lib/libc.so.6":  false,
		"7f0000000000-7f0000100000 r--p 00000000 00:00 0 ":                 false,
		"00400000-01000000 r-xp 00000000 fe:00 12 /tmp/x /usr/bin/doorwar": false,
		"zz-01000000 r-xp 00000000 fe:00 12 /usr/bin/doorward":             false,
		"": false,
	} {
		if _, _, ok := readOnly(line, "/usr/bin/doorward"); ok != want {
			t.Errorf("%q: %t", line, ok)
		}
	}
}
