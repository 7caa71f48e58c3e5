//go:build unix

package process

import "golang.org/x/sys/unix"

func mayExecute(path string) bool { return unix.Access(path, unix.X_OK) == nil }
