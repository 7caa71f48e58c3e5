//go:build !unix

package durable

import (
	"io/fs"
	"os"
)

// judgeOwner does not judge: the daemon does not run here.
func judgeOwner(fs.FileInfo) error { return nil }

// judgeAncestor does not judge either.
func judgeAncestor(fs.FileInfo) error { return nil }

// alone does not wait.
func alone(*os.Root) (end func(), err error) { return func() {}, nil }
