package process

import (
	"strings"
	"testing"
)

// TestNestedNamesTheSocketsInTheWay: the error for nested_sandbox with a grant that contains sockets of engines names
// them with the key that grants them. The directory of one, granted by itself, is not in the way.
func TestNestedNamesTheSocketsInTheWay(t *testing.T) {
	t.Parallel()
	s := emptyStreet(t)
	s.listen("/tmp/.X11-unix/X0")
	s.listen("/tmp/tmux-0/default")
	const remedy = "write: [/tmp/.X11-unix, /tmp/tmux-0]"
	for path, want := range map[string]bool{"/tmp": true, "/tmp/.X11-unix": false} {
		box := Sandbox{Mode: Contain, Nested: true, Write: []string{path}}
		said := s.prison(s.inmate(), order{Homes: []string{s.home}, Path: s.base + "/child.test", Args: []string{"as-prisoner"}, Sandbox: box})
		if got := said["not started"]; strings.Contains(got, "write: [") != want || want && !strings.Contains(got, remedy) {
			t.Errorf("%s: %v, want %q in it: %v", path, said, remedy, want)
		}
	}
}
