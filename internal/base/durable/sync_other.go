//go:build !linux

package durable

import "os"

// SyncData syncs the file to the disk; on macOS by F_FULLFSYNC.
func SyncData(f *os.File) error { return f.Sync() }
