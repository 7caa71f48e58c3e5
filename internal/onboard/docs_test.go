package onboard

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheDocumentedTableIsThatOfTheProgram compares the table of docs/clients.md with the
// clients of this package. The paths are those of Linux.
func TestTheDocumentedTableIsThatOfTheProgram(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| name | client |")
	rows := strings.Split(strings.SplitN(table, "\n\n", 2)[0], "\n")
	var want []string
	for _, c := range Clients() {
		want = append(want, "| `"+c.Name+"` | "+c.Title+" | "+cell(c.user.linux)+" | "+cell(c.project)+" | "+servers(c)+" |")
	}
	if diff := cmp.Diff(want, rows[min(2, len(rows)):]); diff != "" {
		t.Error(diff)
	}
}

// cell formats paths as the table has them.
func cell(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	text := "`" + strings.Join(paths, "`, `") + "`"
	return strings.NewReplacer("$APP/", "APP/", "$XDG/", "CONFIG/").Replace(text)
}

func servers(c *Client) string {
	text := "`" + strings.Join(c.Keys, ".") + "`"
	if c.list {
		text += ", a list"
	}
	if c.later != nil {
		text += ", or `" + strings.Join(c.later.Keys, ".") + "`"
	}
	return text
}

// TestTheVerifiedVersionsAreThoseOfTheTests compares the versions that docs/clients.md calls
// verified with the pinned ones of test/package.json.
func TestTheVerifiedVersionsAreThoseOfTheTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| client | version |")
	rows := strings.Split(strings.SplitN(table, "\n\n", 2)[0], "\n")
	pinned := pinnedVersions(t)
	for _, row := range rows[min(2, len(rows)):] {
		version, _, _ := strings.Cut(strings.TrimSpace(strings.Split(row, "|")[2]), ",")
		if !slices.Contains(pinned, version) {
			t.Errorf("no package is pinned at %s: %s", version, row)
		}
	}
	if len(rows) < 3 {
		t.Error("the table is not there")
	}
}

func pinnedVersions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../test/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Dependencies, OptionalDependencies map[string]string }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, versions := range []map[string]string{file.Dependencies, file.OptionalDependencies} {
		for _, version := range versions {
			all = append(all, version)
		}
	}
	return all
}
