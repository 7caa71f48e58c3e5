package peer

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unmap drops the pages of the program's own file that this process has mapped read-only:
// code and constants that only the start has used. They stay in the page cache, and a
// page that is used again is mapped again, so this costs some thousand page faults once
// and no reading.
func Unmap() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the path of this program: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("finding the memory mappings of this program: %w", err)
	}
	for line := range bytes.Lines(maps) {
		at, length, ok := readOnly(strings.TrimSuffix(string(line), "\n"), exe)
		if !ok {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, at, length, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("releasing the pages of this program: %w", errno)
		}
	}
	return nil
}

// Mapped returns how much of the files that this process has mapped is resident, in bytes; 0: it
// is unknown.
func Mapped() int {
	b, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 3 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[2]) // 0 after an error
	return pages * os.Getpagesize()
}

// readOnly parses a line of /proc/PID/maps. ok is true only for a private mapping of exe
// that is not writable: MADV_DONTNEED would discard what was written to one that is.
func readOnly(line, exe string) (at, length uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || !strings.HasSuffix(line, " "+exe) || fields[1] != "r-xp" && fields[1] != "r--p" {
		return 0, 0, false
	}
	from, to, ok := strings.Cut(fields[0], "-")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	return uintptr(start), uintptr(end - start), ok && err1 == nil && err2 == nil && end > start
}
