//go:build !unix

package durable

import (
	"io/fs"
	"os"
)

// judgeOwner accepts every file: the daemon does not run on this system.
func judgeOwner(fs.FileInfo) error { return nil }

// judgeAncestor accepts every directory.
func judgeAncestor(fs.FileInfo) error { return nil }

// alone takes no lock.
func alone(*os.Root) (end func(), err error) { return func() {}, nil }

// Removed reports false: an open file cannot be removed here.
func Removed(fs.FileInfo) bool { return false }
