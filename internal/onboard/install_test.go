package onboard_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/onboard"
)

// filled is a text of texts with the keys and entries of a client.
func filled(c *onboard.Client, text string) []byte {
	entry, flow, empty := `x: {command: y, args: []} # mine`, `{x: {command: "a, {b"}, z: {command: d}}`, "{}"
	if c.Name == "continue" {
		entry, flow, empty = "- name: x # mine\n    command: y", `[{name: x, command: "a, {b"}]`, "[]"
	}
	if strings.Contains(text, "\r\n") {
		entry = strings.ReplaceAll(entry, "\n", "\r\n")
	}
	if strings.Contains(text, "\n    ENTRY") {
		entry = strings.ReplaceAll(entry, "\n", "\n  ")
	}
	return []byte(strings.NewReplacer("KEY", c.Keys[0], "ENTRY", entry, "FLOW", flow, "EMPTY", empty).Replace(text))
}

func install(t *testing.T, c *onboard.Client, path string) []byte {
	t.Helper()
	change, err := onboard.Install(c, path, program, []string{"connect"})
	if err != nil {
		t.Fatalf("install: %v", err)
	}
	if _, err := onboard.Write([]onboard.Change{change}, now); err != nil {
		t.Fatalf("install: %v", err)
	}
	return content(t, path)
}

func uninstall(t *testing.T, c *onboard.Client, path string) {
	t.Helper()
	change, err := onboard.Uninstall(c, path)
	if err != nil {
		t.Fatalf("uninstall: %v", err)
	}
	if _, err := onboard.Write([]onboard.Change{change}, now.Add(1)); err != nil {
		t.Fatalf("uninstall: %v", err)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// listing is what a directory holds.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestAnInstalledEntryHasTheShapeOfItsClient(t *testing.T) {
	t.Parallel()
	for _, c := range onboard.Clients() {
		var want map[string]any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(shapes[c.Name], `"P"`, `"`+program+`"`)), &want); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		path := filepath.Join(t.TempDir(), "deep", "file")
		text, err := json.Marshal(parsed(t, c.Format, install(t, c, path)))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", c.Name, diff)
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode of the new file: %v %v", c.Name, fi, err)
		}
		uninstall(t, c, path)
		if left := listing(t, filepath.Dir(path)); left != nil {
			t.Errorf("%s: uninstall left %v", c.Name, left)
		}
	}
}

func TestUninstallGivesTheSameBytesBack(t *testing.T) {
	t.Parallel()
	for _, c := range onboard.Clients() {
		for name, text := range texts[c.Format] {
			t.Run(c.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				before, path := filled(c, text), filepath.Join(t.TempDir(), "file")
				if err := os.WriteFile(path, before, 0o640); err != nil {
					t.Fatal(err)
				}
				after := install(t, c, path)
				if words, err := c.Installed(after); err != nil || !cmp.Equal(words, []string{program, "connect"}) {
					t.Fatalf("installed: %v %v in\n%s", words, err, after)
				}
				if again := install(t, c, path); !bytes.Equal(again, after) {
					t.Errorf("installed twice:\n%s", cmp.Diff(string(after), string(again)))
				}
				uninstall(t, c, path)
				if diff := cmp.Diff(string(before), string(content(t, path))); diff != "" {
					t.Error(diff)
				}
				if left := listing(t, filepath.Dir(path)); !cmp.Equal(left, []string{"file"}) {
					t.Errorf("left: %v", left)
				}
				if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o640 {
					t.Errorf("mode: %v %v", fi, err)
				}
			})
		}
	}
}

// TestTheEntryAloneIsRemovedFromAChangedFile: without a backup Uninstall removes the
// entry, and text that had servers is as it was except for outer white space.
func TestTheEntryAloneIsRemovedFromAChangedFile(t *testing.T) {
	t.Parallel()
	for _, c := range onboard.Clients() {
		for name, text := range texts[c.Format] {
			t.Run(c.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				before := filled(c, text)
				after, err := c.Install(before, program, []string{"connect"})
				if err != nil {
					t.Fatal(err)
				}
				if !subsequence(before, after) && name != "null" && !strings.Contains(text, "EMPTY") {
					t.Errorf("some of the text is gone:\n%s", after)
				}
				text, found, err := c.Uninstall(after)
				if err != nil || !found {
					t.Fatalf("%v in\n%s", err, after)
				}
				if words, err := c.Installed(text); err != nil || words != nil {
					t.Errorf("still there: %v %v", words, err)
				}
				if len(before) > 0 && strings.Contains(string(before), "command") {
					if diff := cmp.Diff(strings.TrimSpace(string(before)), strings.TrimSpace(string(text))); diff != "" {
						t.Error(diff)
					}
				}
			})
		}
	}
}

// subsequence reports whether b is a with insertions only.
func subsequence(a, b []byte) bool {
	for _, c := range b {
		if len(a) > 0 && a[0] == c {
			a = a[1:]
		}
	}
	return len(a) == 0
}
