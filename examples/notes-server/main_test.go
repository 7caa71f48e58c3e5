//lint:file-ignore SA1019 logging is deprecated since the protocol of 2026-07-28; clients of the older ones show it.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMain lets the test binary be the server, so that the tests talk to a real process.
func TestMain(m *testing.M) {
	if os.Getenv("NOTES_SERVER") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command is the server as a process.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "NOTES_SERVER=1")
	return cmd
}

// heard collects the notifications of the server.
type heard struct {
	changed chan struct{}
	logged  chan string
}

// connect starts a server and speaks the given version to it.
func connect(t *testing.T, version string, args ...string) (*mcp.ClientSession, heard) {
	t.Helper()
	h := heard{make(chan struct{}, 100), make(chan string, 100)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { h.changed <- struct{}{} },
		LoggingMessageHandler:      func(_ context.Context, r *mcp.LoggingMessageRequest) { h.logged <- r.Params.Data.(string) },
	})
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: command(args...)}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { session.Close() })
	return session, h
}

// call calls a tool and decodes its result; a tool's own error is returned.
func call[T any](t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) (T, error) {
	t.Helper()
	var out T
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return out, err
	}
	text := res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		return out, errors.New(text)
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s gave %s: %v", tool, text, err)
	}
	return out, nil
}

// wait returns one value of a channel, and fails after 20 s.
func wait[T any](t *testing.T, c chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s, _ := connect(t, version)
			first, err := call[note](t, s, "add_note", map[string]any{"title": "  Milk \n and eggs ", "text": "Buy both on Friday"})
			if err != nil || first.Title != "Milk and eggs" || first.ID == "" || first.Added.IsZero() {
				t.Fatalf("added %+v, %v", first, err)
			}
			second, err := call[note](t, s, "add_note", map[string]any{"title": "Keys"})
			if err != nil {
				t.Fatal(err)
			}
			all, err := call[notesOutput](t, s, "list_notes", nil)
			if err != nil || len(all.Notes) != 2 || all.Notes[0] != first || all.Notes[1] != second {
				t.Errorf("listed %+v, %v", all, err)
			}
			found, err := call[notesOutput](t, s, "search_notes", map[string]any{"query": "FRIDAY milk"})
			if err != nil || len(found.Notes) != 1 || found.Notes[0] != first {
				t.Errorf("found %+v, %v", found, err)
			}
			content, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: scheme + first.ID})
			if err != nil || content.Contents[0].Text != "Milk and eggs\n\nBuy both on Friday" {
				t.Errorf("read %+v, %v", content, err)
			}
			prompt, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "summarize_notes", Arguments: map[string]string{"topic": "keys"}})
			if err != nil || prompt.Description != "notes: 1" || !strings.Contains(prompt.Messages[0].Content.(*mcp.TextContent).Text, "# Keys") {
				t.Errorf("prompt %+v, %v", prompt, err)
			}
			if gone, err := call[note](t, s, "delete_note", map[string]any{"id": first.ID}); err != nil || gone != first {
				t.Errorf("deleted %+v, %v", gone, err)
			}
			if _, err := call[note](t, s, "delete_note", map[string]any{"id": first.ID}); err == nil || err.Error() != errUnknown.Error() {
				t.Errorf("deleted twice: %v", err)
			}
			if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: scheme + first.ID}); err == nil {
				t.Error("a deleted note can be read")
			}
			list, err := s.ListResources(t.Context(), nil)
			if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != scheme+second.ID || list.Resources[0].Title != "Keys" {
				t.Errorf("resources %+v, %v", list, err)
			}
		})
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	s, _ := connect(t, "")
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if readOnly := tool.Name == "list_notes" || tool.Name == "search_notes"; tool.Annotations.ReadOnlyHint != readOnly {
			t.Errorf("%s says read only %v", tool.Name, tool.Annotations.ReadOnlyHint)
		}
	}
	if got := strings.Join(names, " "); got != "add_note delete_note list_notes search_notes" {
		t.Errorf("tools %s", got)
	}
}

func TestNotesRefuses(t *testing.T) {
	t.Parallel()
	s, _ := connect(t, "")
	for name, args := range map[string]map[string]any{
		"no title":     {"text": "x"},
		"empty title":  {"title": " \n"},
		"long title":   {"title": strings.Repeat("x", maxTitle+1)},
		"long text":    {"title": "x", "text": strings.Repeat("x", maxText+1)},
		"wrong type":   {"title": 1},
		"unknown name": {"title": "x", "tags": "y"},
	} {
		if _, err := call[note](t, s, "add_note", args); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if all, err := call[notesOutput](t, s, "list_notes", nil); err != nil || len(all.Notes) != 0 {
		t.Errorf("listed %+v, %v", all, err)
	}
}

// A client is notified of new and deleted notes, and receives log messages of the level
// that it set.
func TestNotifications(t *testing.T) {
	t.Parallel()
	s, h := connect(t, "2025-11-25")
	if err := s.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Fatal(err)
	}
	n, err := call[note](t, s, "add_note", map[string]any{"title": "x"})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, h.changed, "list_changed after adding")
	if got := wait(t, h.logged, "log message"); got != "added note "+n.ID {
		t.Errorf("logged %q", got)
	}
	if _, err := call[note](t, s, "delete_note", map[string]any{"id": n.ID}); err != nil {
		t.Fatal(err)
	}
	wait(t, h.changed, "list_changed after deleting")
	if got := wait(t, h.logged, "log message"); got != "deleted note "+n.ID {
		t.Errorf("logged %q", got)
	}
}

// Processes that share a file lose none of each other's notes, and a later process reads
// them all.
func TestSharedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.jsonl")
	one, _ := connect(t, "", path)
	two, _ := connect(t, "", path)
	const each = 20
	var wg sync.WaitGroup
	for _, s := range []*mcp.ClientSession{one, two} {
		wg.Go(func() {
			for range each {
				n, err := call[note](t, s, "add_note", map[string]any{"title": "x", "text": strings.Repeat("y", 5000)})
				if err != nil {
					t.Error(err)
				}
				if _, err := call[note](t, s, "add_note", map[string]any{"title": "kept"}); err != nil {
					t.Error(err)
				}
				if _, err := call[note](t, s, "delete_note", map[string]any{"id": n.ID}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	one.Close()
	three, _ := connect(t, "", path)
	for _, s := range []*mcp.ClientSession{two, three} {
		if all, err := call[notesOutput](t, s, "list_notes", nil); err != nil || len(all.Notes) != 2*each {
			t.Errorf("%d notes, %v", len(all.Notes), err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{}\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"usage: notes-server [FILE]": {"--help"},
		"broken:2:":                  {broken},
		"usage: notes-server":        {"a", "b"},
	} {
		out, err := command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	if out, err := command().CombinedOutput(); err != nil || len(out) != 0 {
		t.Errorf("an empty standard input: %v, %s", err, out)
	}
}
