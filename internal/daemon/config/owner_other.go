//go:build !unix

package config

import "io/fs"

// judgeOwner accepts every file: the daemon does not run here, and a client that reads a configuration
// starts nothing.
func judgeOwner(fs.FileInfo) error { return nil }
