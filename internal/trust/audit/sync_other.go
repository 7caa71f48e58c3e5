//go:build unix && !linux

package audit

import "os"

// datasync syncs the file to the disk; on macOS by F_FULLFSYNC.
func datasync(f *os.File) error { return f.Sync() }
