package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/onboard"
)

// spelling returns a name in one of many spellings, some of which Doorward does not allow.
func spelling(r *rand.Rand) string {
	words := []string{"github", "agent", "instructions", "a b", "a__b", "_a_", "/", "", "x", strings.Repeat("long", 12), "github-cursor", "Ä"}
	name := []rune(words[r.IntN(len(words))])
	for i, c := range name {
		if r.IntN(2) == 0 {
			name[i] = []rune(strings.ToUpper(string(c)))[0]
		}
	}
	return string(name)
}

// someServers returns the file of a client, whose servers have random names. Two of them
// differ if their ports differ.
func someServers(r *rand.Rand) ([]byte, error) {
	all := map[string]any{}
	for range 1 + r.IntN(6) {
		all[spelling(r)] = map[string]any{"url": fmt.Sprintf("https://h.example:%d/mcp", 1+r.IntN(4)), "disabled": r.IntN(3) == 0}
	}
	return json.Marshal(map[string]any{"mcpServers": all})
}

// TestAnImportedConfigurationLoads: whatever the spelling of the names in the files of several
// clients, the configuration loads after the import and has each server of the files once.
func TestAnImportedConfigurationLoads(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		home := t.TempDir()
		places := onboard.Places{OS: "linux", Dir: home, Env: func(name string) (string, bool) { return home, name == "HOME" }}
		clients := []*onboard.Client{onboard.Find("claude-desktop"), onboard.Find("cursor"), onboard.Find("windsurf")}
		want, conf := map[string]bool{}, onboard.File{Path: filepath.Join(home, "doorward.yaml")}
		for _, c := range clients {
			path, err := places.User(c)
			if err != nil {
				t.Fatal(err)
			}
			text, err := someServers(r)
			if err != nil {
				t.Fatal(err)
			}
			for port := range 5 {
				address := fmt.Sprintf("https://h.example:%d/mcp", port)
				want[address] = want[address] || strings.Contains(string(text), address)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		plan, err := onboard.Import{Places: places, Judge: judged}.Plan(places.Sources(clients), conf)
		if err != nil {
			t.Fatal(err)
		}
		c, problems := config.Parse("doorward.yaml", home, plan.Change.After, config.Options{Env: lookup, CheckURL: checkURL})
		if c == nil || len(problems) > 0 {
			t.Fatalf("seed %d: %v in\n%s", seed, problems, plan.Change.After)
		}
		for address, is := range want {
			if is && !strings.Contains(string(plan.Change.After), address) {
				t.Errorf("seed %d: %s is not in\n%s", seed, address, plan.Change.After)
			}
		}
	}
}

// TestAnImportDoesNotSpoilAConfiguration: a text with a fatal problem that the file did not have is
// not written, and a problem that it had does not prevent an import.
func TestAnImportDoesNotSpoilAConfiguration(t *testing.T) {
	t.Parallel()
	const (
		good  = "mcpServers:\n  a: {url: 'https://h.example/'}\n"
		typo  = "lisen: {}\n"
		added = "  b: {url: 'https://i.example/'}\n"
		twice = "  A: {url: 'https://i.example/'}\n"
	)
	for name, tc := range map[string]struct {
		before, after string
		spoiled       bool
	}{
		"nothing before":         {"", good, false},
		"a server more":          {good, good + added, false},
		"a name in another case": {good, good + twice, true},
		"a problem as before":    {typo + good, typo + good + added, false},
		"one more problem":       {typo + good, typo + good + twice, true},
		"a secret not there yet": {"", good + "  b: {url: 'https://i.example/', headers: {A: '${file:/no/such/file}'}}\n", false},
	} {
		c := onboard.Change{File: onboard.File{Path: filepath.Join(t.TempDir(), "doorward.yaml"), Text: []byte(tc.before)}, After: []byte(tc.after)}
		if found := spoiled(c); (len(found) > 0) != tc.spoiled {
			t.Errorf("%s: %v", name, found)
		}
	}
}
