package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// userRuntime is where the session manager makes the directories that
// XDG_RUNTIME_DIR names.
const userRuntime = "/run/user"

// sessionSocket is the socket of a daemon that was started in the user's
// session, for a client that does not hand XDG_RUNTIME_DIR to the programs that
// it starts; path, when that is taken or there is none. The directories in root
// belong to their users alone.
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
