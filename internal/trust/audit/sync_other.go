//go:build unix && !linux

package audit

import "os"

// datasync brings the file to the disk; on macOS that is F_FULLFSYNC.
func datasync(f *os.File) error { return f.Sync() }
