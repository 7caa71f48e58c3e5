package pin

import "testing"

func TestWhatLiesInAnotherServersPrefix(t *testing.T) {
	t.Parallel()
	servers := []string{"notes", "my-files", "agent"}
	for name, want := range map[string]string{
		"notes__add": "notes", "Notes__add": "notes", "nоtes__add": "notes", "my-files__": "my-files", "agent__send": "agent",
		"doorward://notes/file:///x": "notes", "DOORWARD://NOTES/x": "notes",
		"add": "", "notes_add": "", "own__add": "", "other__add": "", "doorward://own/x": "", "doorward://other/x": "", "__notes": "", "file:///notes__add": "",
	} {
		if got, _ := trespasses(name, "own", servers); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
