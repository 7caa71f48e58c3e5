package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestAClientThatHidesTheSessionFindsItsDaemon: without the variable of the runtime
// directory, the socket of the session is used if the state directory has none. Several
// clients start programs with HOME, PATH and little else.
func TestAClientThatHidesTheSessionFindsItsDaemon(t *testing.T) {
	t.Parallel()
	root, state := t.TempDir(), filepath.Join(t.TempDir(), "doorward.sock")
	session := filepath.Join(root, fmt.Sprint(os.Getuid()), "doorward", "doorward.sock")
	for _, tc := range []struct {
		name, runtime string
		there         []string
		want          string
	}{
		{"no socket", "", nil, state},
		{"the session's", "", []string{session}, session},
		{"both", "", []string{session, state}, state},
		{"the session's, and the variable", "/elsewhere", []string{session}, state},
	} {
		for _, path := range []string{session, state} {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range tc.there {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		env := func(string) (string, bool) { return tc.runtime, tc.runtime != "" }
		if got := sessionSocket(root, state, env); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
