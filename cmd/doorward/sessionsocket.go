package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// userRuntime is the directory in which the session manager creates the directories that
// XDG_RUNTIME_DIR names.
const userRuntime = "/run/user"

// sessionSocket returns the socket of a daemon in the user's session, for a program whose
// client does not pass XDG_RUNTIME_DIR on. It returns path if XDG_RUNTIME_DIR is set, if
// path exists, or if there is no such socket. Each directory in root belongs to its user,
// and no other user can write to it.
func sessionSocket(root, path string, env func(string) (string, bool)) string {
	if dir, _ := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return path
	}
	session := filepath.Join(root, fmt.Sprint(os.Getuid()), "doorward", "doorward.sock")
	if exists(path) || !exists(session) {
		return path
	}
	return session
}
